-- Limits, and what is used of them.

create or replace view dibs.limits with (security_barrier) as
select b.scope, case when b.scope = 'queue' then b.name end as queue, b.name, b.concurrency, coalesce(h.used, 0) as used,
  case when b.concurrency is not null then greatest(b.concurrency - coalesce(h.used, 0), 0) end as free, b.rate,
  case when b.rate is not null then coalesce(b.burst, least(ceil(b.rate), 1000000)::integer) end as burst,
  null::integer as weight,
  least(w.blocked, 10000) as blocked, coalesce(h.holders, '{}') as holders, null::integer as max_depth,
  null::interval as max_age, b.declared, w.blocked > 10000 as blocked_more
from dibs.limit_rule as b
cross join lateral (
  select count(*) as blocked from (select from dibs.blocked as w where w.limit_id = b.id limit 10001) as w
) as w
-- Leases are read once, not for each limit.
left join (
  select u.id, sum(u.units)::integer as used, array_agg(l.id order by l.claimed_at, l.id) as holders
  from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units)
  group by u.id
) as h on h.id = b.id
where b.is_set and ((select dibs.confined_to()) is null or exists (
  select from dibs.queue as q
  where b.scope = 'queue' and q.name = b.name and q.id = any ((select dibs.confined_to())::integer[])))
union all
select 'group', q.name, p.name, p.concurrency, coalesce(h.used, 0),
  case when p.concurrency is not null and p.name is not null then greatest(p.concurrency - coalesce(h.used, 0), 0) end, p.rate,
  case when p.rate is not null then coalesce(p.burst, least(ceil(p.rate), 1000000)::integer) end, p.weight, 0, coalesce(h.holders, '{}'), p.max_depth, p.max_age, null, false
from dibs.group_policy as p
join dibs.queue as q on q.id = p.queue_id
left join (
  select l.queue_id, l.group_key, count(*)::integer as used, array_agg(l.id order by l.claimed_at, l.id) as holders
  from dibs.lease as l where l.group_key is not null group by 1, 2
) as h on h.queue_id = p.queue_id and h.group_key = p.group_key
where (select dibs.confined_to()) is null or q.id = any ((select dibs.confined_to())::integer[]);

comment on view dibs.limits is
'Every limit that was set, with what is used of it, how many jobs wait for it (`blocked`: counted up to 10,000, and
more if blocked_more), and who holds it; `declared` is what code
declared last. A group without a name stands for
every group of its queue without its own settings.';
