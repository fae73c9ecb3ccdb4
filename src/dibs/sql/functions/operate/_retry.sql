-- What retry accepts, and how dead jobs come back.

create or replace function dibs._check_retry(max integer, rate double precision, delay interval) returns void
language plpgsql stable
as $$
begin
  perform dibs._check_count('retry', max);
  if rate <= 0 or max / rate > 31536000 then
    raise exception using errcode = 'DI010',
      message = format('a rate of %s jobs per second makes no sense for %s jobs', rate, max),
      hint = 'give a rate above 0 at which they are all due within a year';
  end if;
  perform dibs._check_delay('retry', delay);
end
$$;

comment on function dibs._check_retry is 'Refuse a retry that makes no sense, with a sentence that says why.';

create or replace function dibs._retry_filter(filter jsonb) returns jsonb
language sql immutable parallel safe
-- Somebody wanted the cancelled to end: a filter brings them back only if it asks for them. Null is as if it were not given.
return case
  when jsonb_typeof(filter) <> 'object' or jsonb_typeof(filter -> 'ids') <> 'null' or jsonb_typeof(filter -> 'states') <> 'null' then filter
  else filter || '{"states": ["failed", "exhausted", "expired"]}' end;

comment on function dibs._retry_filter is 'A filter of a retry: without ids and states it leaves cancelled jobs alone.';

create or replace function dibs._lock_dead(ids uuid[], filter dibs.job_filter) returns table (id uuid, fits boolean)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_queues integer[] := case when filter.queue is not null then dibs._queue_numbers(dibs._queue_number(filter.queue)) end;
begin
  return query
  select d.id, d.fits from unnest(ids) as k (id)
  cross join lateral (
    select d.id, d.state = any (filter.states) and (v_queues is null or d.queue_id = any (v_queues)) as fits
    from dibs.dead as d where d.id = k.id for update skip locked) as d;
end
$$;

comment on function dibs._lock_dead is
'Lock the dead among these jobs, in that order, but for what others hold; and whether each still `fits`: one may have come back and ended
otherwise, or have been moved, since it was found.';

create or replace function dibs._retry_jobs(ids uuid[], rate double precision, delay interval, keeps_due boolean, at timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_back uuid[];
  v_tickets dibs.ready[];
begin
  with chosen as materialized (
    select d.*, j.group_name, j.cost, coalesce(j.ttl, q.ttl) as alive,
      case when j.deadline > at then j.deadline end as deadline,
      row_number() over (order by k.n) as place,
      dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q, 1) as own_lease,
      d.fingerprint is not null and f.id is distinct from d.id and j.dedup_scope is distinct from 'window' as taken
    from unnest(ids) with ordinality as k (id, n)
    join dibs.dead as d on d.id = k.id
    join dibs.job as j on j.id = d.id
    join dibs.queue as q on q.id = d.queue_id
    left join dibs.fingerprint as f on f.hash = d.fingerprint
  ), gone as (
    delete from dibs.dead as d using chosen as c where d.id = c.id and not c.taken
    returning c.*, greatest(
      case when keeps_due then c.due_at end,
      at + delay + coalesce((c.place - 1) / rate * interval '1 second', interval '0')) as due
  )
  select array_agg(g.id), array_agg(dibs._ticket(id => g.id, due_at => g.due, expire_at => dibs._expiry(g.due, g.alive, g.deadline),
    queue_id => g.queue_id, run => g.run, charged => 0, losses => 0, priority => g.priority, own_lease => g.own_lease,
    history => g.history, fingerprint => g.fingerprint, group_key => dibs._group_key(g.queue_id, g.group_name), cost => g.cost))
  into v_back, v_tickets from gone as g;
  perform dibs._return_tickets(v_tickets, at);
  return coalesce(v_back, '{}');
end
$$;

comment on function dibs._retry_jobs is
'Bring dead jobs back that the caller has locked after it retook their keys, in that order, the first after `delay` and `rate` of them per second, and with `keeps_due` none before it was due.
Those whose dedup key another job holds now stay dead. Returns the others.';

create or replace function dibs._refused_jobs(ids uuid[], locked uuid[], chosen uuid[], back uuid[]) returns jsonb
language sql stable
return (
  select coalesce(jsonb_agg(jsonb_build_object('id', r.id, 'reason', r.reason) order by r.id), '[]') from (
    select k.id, 'duplicate' as reason from (select unnest(chosen) except select unnest(back)) as k (id)
    union all
    select k.id, 'busy' from (select unnest(ids) except select unnest(locked)) as k (id)
    cross join lateral (select from dibs.dead as d where d.id = k.id offset 0) as d
  ) as r);

comment on function dibs._refused_jobs is
'The jobs of a step that stay dead: `duplicate` if another job has the dedup key, `busy` if another transaction holds the job.';
