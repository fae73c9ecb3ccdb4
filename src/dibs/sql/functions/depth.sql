-- How much waits, runs and is dead, and how old the oldest of it is.

create or replace function dibs.depth(name text)
returns table (
  queue text, paused boolean, scheduled bigint, ready bigint, blocked bigint, running bigint, failed bigint,
  exhausted bigint, expired bigint, cancelled bigint, oldest_ready interval, oldest_running interval, oldest_untried interval)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select depth.name, coalesce(q.paused_at is not null, false), r.scheduled, r.ready, b.blocked, l.running,
    d.failed, d.exhausted, d.expired, d.cancelled, r.oldest, l.oldest, r.untried
  from (select dibs.now() as at) as n
  left join dibs.queue as q on q.name = depth.name
    and (not q.guarded or coalesce(q.id = any (dibs.confined_to()), true))
  cross join lateral (select dibs.queue_numbers(q.id) as ids) as s
  cross join lateral (
    select count(*) filter (where t.due_at > n.at) as scheduled, count(*) filter (where t.due_at <= n.at) as ready,
      coalesce(n.at - min(t.due_at) filter (where t.due_at <= n.at), interval '0') as oldest,
      coalesce(n.at - min(t.due_at) filter (where t.due_at <= n.at and t.run = 0), interval '0') as untried
    from dibs.ready as t where t.queue_id = any (s.ids)) as r
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

create or replace function dibs.next_due(queues text[]) returns timestamptz
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
begin atomic
  select min(r.due_at)
  from (select dibs.now() as at) as n
  cross join dibs.queue as q
  cross join generate_series(0, 10) as p (priority)
  cross join lateral (
    select t.due_at from dibs.ready as t
    where t.queue_id = q.id and t.priority = p.priority::smallint and t.due_at > n.at
    order by t.due_at limit 1) as r
  where q.name = any (queues) and q.paused_at is null
    and (not q.guarded or coalesce(q.id = any (dibs.confined_to()), true));
end;

comment on function dibs.next_due is
'When the next job of these queues that waits for its time is due; null when none does. A waiting worker sleeps until then.';
