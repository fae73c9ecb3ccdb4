-- Queues that stand still: paused, without a worker, behind.

create or replace function dibs._find_paused(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'paused', 'warning',
    format('queue %s has been paused for %s, and jobs wait in it', q.name, dibs._span(at - q.paused_at)),
    'Nothing of it runs, and nothing of it expires.', format('select * from dibs.resume(%L);', q.name), q.name
  from dibs.queue as q
  where q.paused_at < at - interval '1 hour'
    and exists (select from dibs.ready as r where r.queue_id = any (dibs._queue_numbers(q.id)))
  order by q.name;
end;

comment on function dibs._find_paused is 'Queues that were paused and forgotten.';

create or replace function dibs._find_unexpired(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'past-ttl', 'warning', format('jobs of queue %s are past their TTL or deadline and still wait', q.name),
    'They are never handed out. Until the upkeep buries them they are counted as waiting.',
    'see that a worker does the upkeep; by hand: select dibs.expire();', q.name
  from dibs.queue as q
  where q.paused_at is null and exists (
    select from (
      select r.expire_at from dibs.ready as r where r.queue_id = q.id and r.lane is null
      order by r.queue_id, r.priority, r.due_at, r.id limit 100) as r
    where r.expire_at < at - interval '10 minutes')
  order by q.name;
end;

comment on function dibs._find_unexpired is 'Queues whose oldest jobs should have expired.';

create or replace function dibs._find_unrescued(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'lost-lease', 'error',
    format('%s of queue %s ran out up to %s ago, and nobody took their jobs back', case count(*) when 1 then 'a lease' else count(*) || ' leases' end,
      min(q.name), dibs._span(at - min(l.lease_until))),
    'Their workers are gone. The jobs run again only after a rescue.',
    'see that a worker does the upkeep; by hand: select * from dibs.rescue();', min(q.name)
  from dibs.lease as l join dibs.queue as q on q.id = l.queue_id
  where l.lease_until < at - interval '1 minute'
  group by l.queue_id order by l.queue_id;
end;

comment on function dibs._find_unrescued is 'Leases that ran out and were not rescued.';

create or replace function dibs._find_closed_limits() returns setof dibs.finding
language sql stable
begin atomic
  select 'closed-limit', 'warning', format('the limit of %s %s is 0, so none of its jobs run', r.scope, r.name),
    'That is a way to stop them. Jobs wait until they expire.',
    format('dibs limits set --%s %s --concurrency N, or dibs limits drop --%s %s', r.scope, r.name, r.scope, r.name),
    r.scope || ' ' || r.name
  from dibs.limit_rule as r where r.concurrency = 0
  union all
  select 'lost-unit', 'error',
    format('the limit of %s %s is %s, but it has %s units', r.scope, r.name, r.concurrency, u.units),
    case when u.units < r.concurrency then 'Fewer' else 'More' end || ' jobs run at once than may.', 'select dibs.repair_limits();',
    r.scope || ' ' || r.name
  from dibs.limit_rule as r
  left join (
    select h.id, sum(h.units) as units
    from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as h (id, units) group by h.id) as h on h.id = r.id
  cross join lateral (
    select coalesce(h.units, 0) + coalesce(sum(f.units), 0) - r.debt as units from dibs.limit_unit as f where f.limit_id = r.id) as u
  where u.units <> r.concurrency;
end;

comment on function dibs._find_closed_limits is 'Limits that let nothing run, and those whose units do not add up.';

create or replace function dibs._find_bad_schedules(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'schedule-failing', 'warning',
    format('schedule %s failed %s', s.name, coalesce(': ' || s.status_message, s.failed_runs || ' runs in a row')),
    'What it should do has not been done.', format('dibs schedules show %s; then dibs errors, dibs jobs --dead', s.name),
    s.name
  from dibs.schedule as s
  where s.retired_at is null and s.paused_at is null and s.ended_at is null
    and (s.failed_runs > 0 or s.status_message is not null)
  union all
  select 'schedule-late', 'error', format('schedule %s should have fired %s ago', s.name, dibs._span(at - s.tick_at)),
    'Nobody fires schedules.', 'run a worker without --no-upkeep, or dibs maintain; cron needs Python', s.name
  from dibs.schedule as s
  where s.retired_at is null and s.paused_at is null and s.tick_at < at - interval '5 minutes'
  order by 3;
end;

comment on function dibs._find_bad_schedules is 'Schedules that fail or are late.';
