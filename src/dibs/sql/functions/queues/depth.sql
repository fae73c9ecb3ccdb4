-- depth: how many jobs are in each state, and how old the oldest are.

create or replace function dibs.depth(name text default null)
returns table (
  queue text, paused boolean, scheduled bigint, ready bigint, blocked bigint, running bigint, failed bigint,
  exhausted bigint, expired bigint, cancelled bigint, oldest_ready interval, oldest_running interval,
  oldest_untried interval, estimated text[])
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  with visible as materialized (
    select q.id, q.name, q.paused_at from dibs.queue as q
    where (q.name = depth.name or depth.name is null and q.shard_of is null)
      and (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true))
  ), queue as materialized (
    select v.* from visible as v
    union all select null, depth.name, null where depth.name is not null and not exists (select from visible)
  ), clock as materialized (
    select dibs.now() as at
  ), counted as materialized (
    select c.queue_id, coalesce(sum(c.jobs) filter (where c.state = 'scheduled'), 0)::bigint as scheduled,
      coalesce(sum(c.jobs) filter (where c.state = 'ready'), 0)::bigint as ready,
      coalesce(sum(c.jobs) filter (where c.state = 'blocked'), 0)::bigint as blocked,
      coalesce(sum(c.jobs) filter (where c.state = 'running'), 0)::bigint as running,
      coalesce(sum(c.jobs) filter (where c.state = 'failed'), 0)::bigint as failed,
      coalesce(sum(c.jobs) filter (where c.state = 'exhausted'), 0)::bigint as exhausted,
      coalesce(sum(c.jobs) filter (where c.state = 'expired'), 0)::bigint as expired,
      coalesce(sum(c.jobs) filter (where c.state = 'cancelled'), 0)::bigint as cancelled,
      min(c.since) as since,
      coalesce(array_agg(c.state order by c.state) filter (where c.is_estimate), '{}')
        || case when bool_or(c.is_estimate and c.state = 'running') then array['oldest_running'] else '{}' end
        as estimated
    from clock cross join lateral dibs._count_states(array(select v.id from visible as v), clock.at) as c
    group by c.queue_id
  )
  select q.name, q.paused_at is not null, coalesce(c.scheduled, 0), coalesce(c.ready, 0), coalesce(c.blocked, 0),
    coalesce(c.running, 0), coalesce(c.failed, 0), coalesce(c.exhausted, 0), coalesce(c.expired, 0),
    coalesce(c.cancelled, 0), coalesce(clock.at - oldest.ready, interval '0'),
    coalesce(clock.at - c.since, interval '0'), coalesce(clock.at - oldest.untried, interval '0'),
    coalesce(c.estimated, '{}')
      || array(select a.name from unnest(array['oldest_ready', 'oldest_untried']) as a (name) where oldest.is_estimate)
  from queue as q cross join clock
  left join counted as c on c.queue_id = q.id
  cross join lateral dibs._find_oldest_ready(q.id, clock.at) as oldest;
end;

comment on function dibs.depth is
'The number of jobs of a queue, or of each queue without a name, in each state now; how long the oldest has been ready
and running, and how long the oldest that has never run has been due (retries left out). Up to 10,000 jobs of a state
are counted (divided among the queues without a name), and all of them while their table is small. Beyond that, the
number is an estimate from a sample of the table''s pages, rounded to three digits, and `estimated` names it. An empty
or unknown queue has zeros.';
