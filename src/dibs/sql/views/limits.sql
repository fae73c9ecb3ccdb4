-- limits: every limit, its use, and the jobs that wait for it. The view spells out dibs._burst: it calls functions with
-- the rights of its reader, who may not call that one.

create or replace view dibs.limits with (security_barrier) as
select r.scope, r.of_queue as queue, r.name, r.concurrency, coalesce(h.used, 0) as used,
  case when r.concurrency is not null then greatest(r.concurrency - coalesce(h.used, 0), 0) end as free, r.rate,
  case when r.rate is not null then coalesce(r.burst, least(ceil(r.rate), 1000000)::integer) end as burst,
  null::integer as weight,
  least(w.blocked, 10000) as blocked, coalesce(h.holders, '{}') as holders, null::integer as max_depth,
  null::interval as max_age, r.declared, w.blocked > 10000 as blocked_more
from dibs.limit_rule as r
cross join lateral (
  select count(*) as blocked from (select from dibs.blocked as w where w.limit_id = r.id limit 10001) as w
) as w
-- Read the leases once, not for each limit.
left join (
  select u.id, sum(u.units)::integer as used, array_agg(l.id order by l.claimed_at, l.id) as holders
  from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units)
  group by u.id
) as h on h.id = r.id
where r.is_set and ((select dibs.confined_to()) is null or exists (
  select from dibs.queue as q
  where q.name = r.of_queue and q.id = any ((select dibs.confined_to())::integer[])))
union all
select 'group', q.name, p.name, p.concurrency, coalesce(h.used, 0),
  case when p.concurrency is not null and p.name is not null then greatest(p.concurrency - coalesce(h.used, 0), 0) end,
  p.rate, case when p.rate is not null then coalesce(p.burst, least(ceil(p.rate), 1000000)::integer) end,
  p.weight, 0, coalesce(h.holders, '{}'), p.max_depth, p.max_age, null, false
from dibs.group_policy as p
join dibs.queue as q on q.id = p.queue_id
left join (
  select l.queue_id, l.group_key, count(*)::integer as used, array_agg(l.id order by l.claimed_at, l.id) as holders
  from dibs.lease as l where l.group_key is not null group by 1, 2
) as h on h.queue_id = p.queue_id and h.group_key = p.group_key
where (select dibs.confined_to()) is null or q.id = any ((select dibs.confined_to())::integer[]);

comment on view dibs.limits is
'Every limit that was set: its numbers, how much of it is used and free, the jobs that hold it, and how many wait for
it (`blocked`: counted up to 10,000; blocked_more: there are more). `declared`: the concurrency that code declared
last. A group without a name stands for every group of its queue without its own settings.';
