-- Queues whose jobs do not run or will expire, closed limits, and schedules that fail.

create or replace function dibs._find_paused_queues(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'paused', 'warning',
    format('queue %s has been paused for %s, and jobs wait in it', q.name, dibs._duration_text(at - q.paused_at)),
    'Nothing of it runs, and nothing of it expires.', format('select * from dibs.resume(%L);', q.name), q.name
  from dibs.queue as q
  where q.shard_of is null and q.paused_at < at - interval '1 hour'
    and (exists (select from dibs.ready as r where r.queue_id = any (dibs._queue_numbers(q.id)))
      or exists (select from dibs.blocked as b where b.queue_id = any (dibs._queue_numbers(q.id))))
  order by q.name;
end;

comment on function dibs._find_paused_queues is
'Find queues that have been paused for an hour and have ready or blocked jobs.';

create or replace function dibs._find_unexpired_jobs(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'past-ttl', 'warning', format('jobs of queue %s are past their TTL or deadline and still wait', q.name),
    'No claim returns them. Until the upkeep buries them they are counted as waiting.',
    'see that a worker does the upkeep; by hand: select dibs.expire();', q.name
  from dibs.queue as q
  where q.shard_of is null and q.paused_at is null and exists (
    select from unnest(dibs._queue_numbers(q.id)) as n (id)
    cross join lateral (
      select r.expire_at from dibs.ready as r where r.queue_id = n.id and r.group_key is null
      order by r.queue_id, r.priority, r.due_at, r.id limit 100) as r
    where r.expire_at < at - interval '10 minutes')
  order by q.name;
end;

comment on function dibs._find_unexpired_jobs is
'Find queues with jobs that are past their expiry by 10 minutes or more, among the first 100 ready ones of the queue or
of each of its shards. Jobs of groups are not looked at.';

create or replace function dibs._untried_jobs(queue integer, due_before timestamptz, max_tickets integer)
returns table (due_at timestamptz, expire_at timestamptz)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
begin
  return query
  select h.due_at, h.expire_at
  from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
  cross join lateral (
    select r.due_at, r.expire_at, r.charged from dibs.ready as r
    where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= due_before
    order by r.due_at, r.id limit max_tickets) as h
  where q.id = any (v_ids) and h.charged = 0;
  -- Tickets of groups have no index by due time across groups, so look at any of them.
  return query
  select r.due_at, r.expire_at
  from (
    select r.* from dibs.ready as r where r.queue_id = any (v_ids) and r.group_key is not null limit max_tickets) as r
  where r.due_at <= due_before and r.charged = 0;
  return query
  select b.due_at, b.expire_at
  from (select b.* from dibs.blocked as b where b.queue_id = any (v_ids) limit max_tickets) as b
  where b.due_at <= due_before and b.charged = 0;
end
$$;

comment on function dibs._untried_jobs is
'Return jobs of a queue that were due before a time and still wait for their first attempt. It looks at the oldest
`max_tickets` tickets of each priority, and at as many of groups and as many blocked ones.';

create or replace function dibs._find_expiring_jobs(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  -- Warn in the last quarter of a TTL, but at most 6 hours ahead. A TTL below an hour is short on purpose.
  select 'expiring', 'warning',
    format('%s of queue %s expire%s within %s without a first attempt; the oldest has been due for %s',
      case when e.jobs = 1 then 'a job' when e.jobs >= e.max_tickets then e.max_tickets || ' jobs or more'
        else e.jobs || ' jobs' end,
      q.name,
      case when e.jobs = 1 then 's' else '' end, dibs._duration_text(e.last - at), dibs._duration_text(at - e.since)),
    'A job that waits past its time to live ends as expired, and does not run.',
    format('start workers: dibs worker MODULE:APP --queue %s. To keep these jobs until then: dibs pause %s; dibs resume'
      ' %s --extend 1d. To let later ones wait for longer: dibs queues set %s --ttl 7d, or dibs.App(ttl=…)',
      q.name, q.name, q.name, q.name), q.name
  from (
    select least(greatest(dibs._count_bound() / greatest(count(*), 1), 100), 1000)::integer as max_tickets
    from dibs.queue
  ) as n
  cross join dibs.queue as q
  cross join lateral (
    select count(*) as jobs, min(u.due_at) as since, max(u.expire_at) as last, n.max_tickets
    from dibs._untried_jobs(q.id, at - interval '45 minutes', n.max_tickets) as u
    where u.expire_at > at and u.expire_at between u.due_at + interval '1 hour' and at + interval '6 hours'
      -- Before version 17 PostgreSQL has no infinite intervals.
      and case when isfinite(u.expire_at) then u.expire_at - at <= (u.expire_at - u.due_at) / 4 end) as e
  where q.shard_of is null and q.paused_at is null and e.jobs > 0
  order by q.name;
end;

comment on function dibs._find_expiring_jobs is 'Find queues with jobs that will soon expire without a first attempt.';

create or replace function dibs._find_unrescued_leases(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'lost-lease', 'error',
    format('%s of queue %s ran out up to %s ago, and nobody took their jobs back',
      case count(*) when 1 then 'a lease' else count(*) || ' leases' end, q.name,
      dibs._duration_text(at - min(l.lease_until))),
    'Their workers are gone. The jobs run again only after a rescue.',
    'see that a worker does the upkeep; by hand: select * from dibs.rescue();', q.name
  from dibs.lease as l join dibs.queue as q on q.id = dibs._shown_queue(l.queue_id)
  where l.lease_until < at - interval '1 minute'
  group by q.name order by q.name;
end;

comment on function dibs._find_unrescued_leases is
'Find leases that ran out a minute ago or more and were not rescued.';

create or replace function dibs._find_closed_limits() returns setof dibs.finding
language sql stable
begin atomic
  select 'closed-limit', 'warning', format('the limit of %s %s is 0, so none of its jobs run', r.scope, r.name),
    'That is a way to stop them. Jobs wait until they expire.',
    format('dibs limits set --%s %s --concurrency N, or dibs limits drop --%s %s', r.scope, r.name, r.scope, r.name),
    r.scope || ' ' || r.name
  from dibs.limit_rule as r where r.concurrency = 0;
end;

comment on function dibs._find_closed_limits is 'Find limits of 0.';

create or replace function dibs._find_lost_units() returns setof dibs.finding
language sql stable
begin atomic
  -- The units of a limit are those in use and the free ones, less its debt: units that go once they are free.
  select 'lost-unit', 'error',
    format('the limit of %s %s is %s, but it has %s units', r.scope, r.name, r.concurrency, u.units),
    case when u.units < r.concurrency then 'Fewer' else 'More' end || ' jobs run at once than may.',
    'select dibs.repair_limits();',
    r.scope || ' ' || r.name
  from dibs.limit_rule as r
  left join (
    select h.id, sum(h.units) as units
    from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as h (id, units)
    group by h.id) as used on used.id = r.id
  cross join lateral (
    select coalesce(used.units, 0) + coalesce(sum(free.units), 0) - r.debt as units
    from dibs.limit_unit as free where free.limit_id = r.id) as u
  where u.units <> r.concurrency;
end;

comment on function dibs._find_lost_units is 'Find limits with more or fewer units than they should have.';

create or replace function dibs._find_bad_schedules(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'schedule-failing', 'warning',
    format('schedule %s failed%s', s.name,
      coalesce(': ' || s.status_message, format(' %s runs in a row', s.failed_runs))),
    'Its work has not been done.',
    format('dibs schedules show %s; then dibs channels error-log, dibs jobs --dead', s.name),
    s.name
  from dibs.schedule as s
  where s.retired_at is null and s.paused_at is null and s.ended_at is null
    and (s.failed_runs > 0 or s.status_message is not null)
  union all
  select 'schedule-late', 'error',
    format('schedule %s should have fired %s ago', s.name, dibs._duration_text(at - s.tick_at)),
    'Nobody fires schedules.', 'run a worker without --no-upkeep, or dibs maintain; cron needs Python', s.name
  from dibs.schedule as s
  where s.retired_at is null and s.paused_at is null and s.tick_at < at - interval '5 minutes'
  order by 3;
end;

comment on function dibs._find_bad_schedules is
'Find schedules whose runs fail, and schedules that should have fired 5 minutes ago or more.';
