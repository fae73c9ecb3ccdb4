-- next_due: when the next job of some queues is due.

create or replace function dibs.next_due(queues text[]) returns timestamptz
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select min(r.due_at)
  from (select dibs.now() as at) as n
  cross join dibs.queue as q
  cross join lateral (
    (select min(t.due_at) as due_at from unnest(dibs._priorities(q)) as p (priority)
     cross join lateral (
       select t.due_at from dibs.ready as t
       where t.queue_id = q.id and t.priority = p.priority and t.due_at > n.at and t.group_key is null
       order by t.due_at limit 1) as t)
    union all
    -- Pointers of noisy groups are below zero.
    (select t.look_at from unnest(array[q.id, -q.id]) as k (id)
     cross join lateral (
       select t.look_at from dibs.group_pointer as t where q.has_groups and t.queue_id = k.id and t.look_at > n.at
       order by t.look_at limit 1) as t)
    union all
    -- The time when an exhausted rate lets the next job start: the queue's rate, or one that its first blocked job
    -- needs.
    (select latest.tat - (dibs._burst(rule.rate, rule.burst) - 1) / rule.rate * interval '1 second'
     from dibs.limit_rule as rule cross join lateral (
       select o.tat from dibs.limit_rate as o where o.limit_id = rule.id order by o.n desc limit 1) as latest
     where rule.rate is not null
       and latest.tat - (dibs._burst(rule.rate, rule.burst) - 1) / rule.rate * interval '1 second' > n.at
       and case when rule.of_queue is not null then rule.of_queue = q.name
         else q.id = dibs._first_blocked_queue(rule.id) end)
  ) as r
  where q.name = any (queues) and q.paused_at is null
    and (not q.is_confined or coalesce(q.id = any (dibs.confined_to()), true));
end;

comment on function dibs.next_due is
'Worker protocol: return when the next job of these queues that waits for its time is due; null if there is none. A
waiting worker sleeps until then.';
