-- Rows past their retention that go before their day is dropped, or have none.

create or replace function dibs._kept_since(at timestamptz, retention interval) returns timestamptz
language sql stable parallel safe
return dibs._day_start(((at - retention) at time zone 'UTC')::date);

comment on function dibs._kept_since is 'The start of the oldest day that a retention keeps.';

create or replace function dibs._trim_jobs(at timestamptz, max integer) returns bigint
language plpgsql volatile
as $$
declare
  v_old uuid[];
  v_trimmed bigint;
begin
  with kept as materialized (
    select q.id, q.retention, dibs._id_floor(dibs._kept_since(at, q.retention)) as since from dibs.queue as q
  )
  select array_agg(o.id) into v_old from (
    select j.id from dibs.job as j join kept as k on k.id = j.queue_id and j.id < k.since
    where j.id < (select n.since from kept as n order by n.since desc limit 1)
      and not dibs._is_live(j.id, at)
      -- A job that outlived its day is kept for its retention from its last attempt on.
      and not exists (select from dibs.attempt as a where a.id = j.id and a.ended_at > at - k.retention)
    limit max
  ) as o;
  delete from dibs.dead as d where d.id = any (array(
    select o.id from dibs.dead as o join dibs.queue as q on q.id = o.queue_id
    where o.id = any (v_old) and o.ended_at <= at - q.retention order by o.id for update of o skip locked));
  -- One whose dead row was locked may be about to be redriven: it stays, and so does one that was redriven since.
  with gone as (
    delete from dibs.job as j
    where j.id = any (v_old) and not dibs._is_live(j.id, at) and not exists (select from dibs.dead as d where d.id = j.id)
    returning 1)
  select count(*) into v_trimmed from gone;
  return v_trimmed;
end
$$;

comment on function dibs._trim_jobs is
'Delete up to `max` jobs past their queue''s retention that leave with no day: those in the default partition, in days
too crowded to drop, and of queues with a shorter retention than others.';

create or replace function dibs._trim_attempts(at timestamptz, max integer) returns bigint
language plpgsql volatile
as $$
declare
  v_trimmed bigint;
begin
  with kept as materialized (
    select q.id, at - q.history_retention as until,
      dibs._id_floor(dibs._kept_since(at, q.history_retention)) as since
    from dibs.queue as q
  ), old as materialized (
    select a.id, a.run from dibs.attempt as a join kept as k on k.id = a.queue_id and a.id < k.since
    where a.id < (select n.since from kept as n order by n.since desc limit 1) and a.ended_at < k.until limit max
  ), gone as (
    delete from dibs.attempt as a using old as o where a.id = o.id and a.run = o.run returning 1
  )
  select count(*) into v_trimmed from gone;
  return v_trimmed;
end
$$;

comment on function dibs._trim_attempts is
'Delete up to `max` attempts past their queue''s history retention that leave with no day.';
