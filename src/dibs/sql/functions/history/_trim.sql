-- Delete rows past their retention one by one, where no whole day can be dropped.

create or replace function dibs._first_kept_day(at timestamptz, retention interval) returns timestamptz
language sql stable parallel safe
return dibs._day_start(((at - retention) at time zone 'UTC')::date);

comment on function dibs._first_kept_day is
'The start of the day in which a retention ends. That day is kept whole.';

create or replace function dibs._delete_past_retention(ids uuid[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_deleted bigint;
begin
  delete from dibs.dead as d where d.id = any (array(
    select o.id from dibs.dead as o join dibs.queue as q on q.id = o.queue_id
    where o.id = any (ids) and o.ended_at <= at - q.retention order by o.id for update of o skip locked));
  with gone as (
    delete from dibs.job as j
    where j.id = any (ids)
      -- It may have been retried since the caller found it.
      and not dibs._is_live_job(j.id, at)
      -- Keep a job whose dead ticket is locked: somebody may be retrying it.
      and not exists (select from dibs.dead as d where d.id = j.id)
    returning 1)
  select count(*) into v_deleted from gone;
  return v_deleted;
end
$$;

comment on function dibs._delete_past_retention is
'Delete jobs that the caller has found past their retention, with their dead tickets. Return how many. Keep a job that
lives again, or whose dead ticket is locked or within the retention.';

create or replace function dibs._trim_jobs(at timestamptz, after uuid, max integer, out trimmed bigint, out next uuid)
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  -- The end of the range to read: the first kept day of the queue with the shortest retention. There is no max of uuid.
  v_end constant uuid := (
    select max(dibs._id_floor(dibs._first_kept_day(at, q.retention))::text) from dibs.queue as q)::uuid;
  v_read_count bigint;
  v_last_read uuid;
  v_old uuid[];
begin
  with queue as materialized (
    select q.id, q.retention, dibs._id_floor(dibs._first_kept_day(at, q.retention)) as kept_from from dibs.queue as q
  ), candidate as materialized (
    select j.id, j.queue_id from dibs.job as j where j.id > after and j.id < v_end
    order by j.id limit 10 * _trim_jobs.max
  ), before_kept_days as materialized (
    select c.id, q.retention from candidate as c join queue as q on q.id = c.queue_id and c.id < q.kept_from
    order by c.id
  ), old as materialized (
    select e.id from before_kept_days as e
    where not dibs._is_live_job(e.id, at)
      -- A job may have run long after its enqueue: here its retention begins with its last attempt.
      and not exists (select from dibs.attempt as a where a.id = e.id and a.ended_at > at - e.retention)
    limit _trim_jobs.max
  )
  select array(select o.id from old as o order by o.id), (select count(*) from candidate),
    (select c.id from candidate as c order by c.id desc limit 1)
  into v_old, v_read_count, v_last_read;
  trimmed := dibs._delete_past_retention(v_old, at);
  next := case when cardinality(v_old) = _trim_jobs.max then v_old[_trim_jobs.max]
    when v_read_count = 10 * _trim_jobs.max then v_last_read end;
end
$$;

comment on function dibs._trim_jobs is
'Delete up to `max` jobs past their queue''s retention whose day is not dropped: jobs in the default partition, in
crowded days, and of queues that keep jobs for a shorter time than others. Reads the next 10 * max jobs after an id.
`next` is where to go on, null after the last.';

create or replace function dibs._trim_attempts(
  at timestamptz, after uuid, max integer, out trimmed bigint, out next uuid)
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  -- The end of the range to read: the first kept day of the queue with the shortest retention. There is no max of uuid.
  v_end constant uuid := (
    select max(dibs._id_floor(dibs._first_kept_day(at, q.history_retention))::text) from dibs.queue as q)::uuid;
  v_read_count bigint;
  v_last_read uuid;
  v_old_count bigint;
  v_last_old uuid;
begin
  with queue as materialized (
    select q.id, at - q.history_retention as ended_before,
      dibs._id_floor(dibs._first_kept_day(at, q.history_retention)) as kept_from
    from dibs.queue as q
  ), candidate as materialized (
    select a.id, a.run, a.queue_id, a.ended_at from dibs.attempt as a
    where a.id > after and a.id < v_end order by a.id, a.run limit 10 * _trim_attempts.max
  ), old as materialized (
    -- A job may have run long after its enqueue, so its day and the end of the attempt both have to be old enough. The
    -- queue may have been dropped: then no retention keeps its attempts any more.
    select c.id, c.run from candidate as c
    left join queue as q on q.id = c.queue_id
    where q.id is null or (c.id < q.kept_from and c.ended_at < q.ended_before)
    order by c.id, c.run limit _trim_attempts.max
  ), gone as (
    delete from dibs.attempt as a using old as o where a.id = o.id and a.run = o.run returning 1
  )
  select (select count(*) from gone),
    (select count(*) from old), (select o.id from old as o order by o.id desc limit 1),
    (select count(*) from candidate), (select c.id from candidate as c order by c.id desc limit 1)
  into trimmed, v_old_count, v_last_old, v_read_count, v_last_read;
  next := case when v_old_count = _trim_attempts.max then v_last_old
    when v_read_count = 10 * _trim_attempts.max then v_last_read end;
end
$$;

comment on function dibs._trim_attempts is
'Delete up to `max` attempts past their queue''s history retention. Reads the next 10 * max attempts of jobs with an id
above `after`. `next` is the id of a job, after which to go on, null after the last. If `max` falls between two attempts
of one job, the next round from the start deletes the others.';

create or replace function dibs._delete_dead_of_day(day date, at timestamptz, max integer) returns bigint
language plpgsql volatile
as $$
declare
  v_old uuid[] := array(
    select d.id from (
      select d.id, d.queue_id, d.ended_at from dibs.dead as d
      where d.id >= dibs._id_floor(dibs._day_start(day)) and d.id < dibs._id_floor(dibs._day_start(day + 1))
      order by d.id limit _delete_dead_of_day.max + dibs._max_live_jobs()) as d
    join dibs.queue as q on q.id = d.queue_id where d.ended_at <= at - q.retention
    order by d.id limit _delete_dead_of_day.max);
begin
  return case when cardinality(v_old) = _delete_dead_of_day.max then dibs._delete_past_retention(v_old, at) else 0 end;
end
$$;

comment on function dibs._delete_dead_of_day is
'Delete the first `max` dead jobs of a day that are past their retention, and return how many. If there are fewer,
delete none: _drop_day, which holds a lock on all jobs, deletes so few quickly. Among the rows that are read, up to
_max_live_jobs may still be within their retention; with more, the day is crowded and is not dropped anyway.';
