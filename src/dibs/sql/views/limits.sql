-- Limits, and what is used of them.

create or replace view dibs.limits with (security_barrier) as
select b.scope, case when b.scope = 'queue' then b.name end as queue, b.name, b.concurrency, h.used,
  case when b.concurrency is not null then greatest(b.concurrency - h.used, 0) end as free, b.rate,
  case when b.rate is not null then coalesce(b.burst, least(ceil(b.rate), 1000000)::integer) end as burst,
  null::integer as weight,
  (select count(*) from dibs.blocked as w where w.limit_id = b.id) as blocked, h.holders, null::integer as max_depth,
  null::interval as max_age, b.declared
from dibs.limit_rule as b
cross join lateral (
  select coalesce(sum(u.units), 0)::integer as used,
    coalesce(array_agg(l.id order by l.claimed_at, l.id), '{}') as holders
  from dibs.lease as l
  cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units)
  where u.id = b.id
) as h
where (select dibs.confined_to()) is null or exists (
  select from dibs.queue as q
  where b.scope = 'queue' and q.name = b.name and q.id = any ((select dibs.confined_to())::integer[]))
union all
select 'group', q.name, p.name, p.concurrency, h.used,
  case when p.concurrency is not null and p.name is not null then greatest(p.concurrency - h.used, 0) end, p.rate,
  case when p.rate is not null then coalesce(p.burst, least(ceil(p.rate), 1000000)::integer) end, p.weight, 0, h.holders, p.max_depth, p.max_age, null
from dibs.group_policy as p
join dibs.queue as q on q.id = p.queue_id
cross join lateral (
  select count(*)::integer as used, coalesce(array_agg(l.id order by l.claimed_at, l.id), '{}') as holders
  from dibs.lease as l where l.queue_id = p.queue_id and l.lane = p.lane
) as h
where (select dibs.confined_to()) is null or q.id = any ((select dibs.confined_to())::integer[]);

comment on view dibs.limits is
'Every limit that was set, with what is used of it, how many jobs wait for it, and who holds it; `declared` is what code
declared last. A group without a name stands for
every group of its queue without its own settings.';
