-- How much waits, runs and is dead, and how old the oldest of it is.

create or replace function dibs.depth(name text)
returns table (
  queue text, paused boolean, scheduled bigint, ready bigint, blocked bigint, running bigint, failed bigint,
  exhausted bigint, expired bigint, cancelled bigint, oldest_ready interval, oldest_running interval,
  oldest_untried interval)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select depth.name, coalesce(q.paused_at is not null, false), r.scheduled, r.ready, b.blocked, l.running,
    d.failed, d.exhausted, d.expired, d.cancelled, r.oldest, l.oldest, r.untried
  from (select dibs.now() as at) as n
  left join dibs.queue as q on q.name = depth.name
    and (not q.is_confined or coalesce(q.id = any (dibs.confined_to()), true))
  cross join lateral (select dibs._queue_numbers(q.id) as ids) as s
  cross join lateral (
    -- Each half has its own index.
    select coalesce(sum(t.scheduled), 0)::bigint as scheduled, coalesce(sum(t.ready), 0)::bigint as ready,
      coalesce(max(t.oldest), interval '0') as oldest, coalesce(max(t.untried), interval '0') as untried
    from (
      select count(*) filter (where t.due_at > n.at) as scheduled, count(*) filter (where t.due_at <= n.at) as ready,
        n.at - min(t.due_at) filter (where t.due_at <= n.at) as oldest,
        n.at - min(t.due_at) filter (where t.due_at <= n.at and t.run = 0) as untried
      from dibs.ready as t where t.queue_id = any (s.ids) and t.lane is null
      union all
      select count(*) filter (where t.due_at > n.at), count(*) filter (where t.due_at <= n.at),
        n.at - min(t.due_at) filter (where t.due_at <= n.at),
        n.at - min(t.due_at) filter (where t.due_at <= n.at and t.run = 0)
      from dibs.ready as t where t.queue_id = any (s.ids) and t.lane is not null
    ) as t) as r
  cross join lateral (select count(*) as blocked from dibs.blocked as t where t.queue_id = any (s.ids)) as b
  cross join lateral (
    select count(*) as running, coalesce(n.at - min(t.claimed_at), interval '0') as oldest
    from dibs.lease as t where t.queue_id = any (s.ids)) as l
  cross join lateral (
    select count(*) filter (where t.state = 'failed') as failed,
      count(*) filter (where t.state = 'exhausted') as exhausted,
      count(*) filter (where t.state = 'expired') as expired,
      count(*) filter (where t.state = 'cancelled') as cancelled
    from dibs.dead as t where t.queue_id = any (s.ids)) as d;
end;

comment on function dibs.depth is
'How many jobs of a queue are in each state now, and how long the oldest has been ready and running, and how
long the oldest that never ran has been due (retries left out). An empty or unknown queue has zeros.';
