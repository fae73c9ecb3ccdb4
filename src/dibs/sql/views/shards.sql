-- Holds: the worker of each exclusive queue and shard.

create or replace view dibs.shards with (security_barrier) as
select p.name as queue, coalesce(c.shard, 0)::integer as shard, c.name, s.worker, w.name as worker_name, s.taken_at,
  s.held_until, s.worker is not null and s.held_until > n.at as held,
  s.worker is not null and s.held_until > n.at and s.is_drained as claimable
from dibs.shard as s
join dibs.queue as c on c.id = s.queue_id
join dibs.queue as p on p.id = s.parent
cross join lateral (select dibs.now() as at) as n
left join dibs.worker as w on w.id = s.worker
where (not p.is_confined or coalesce(p.id = any ((select dibs.confined_to())::integer[]), true));

comment on view dibs.shards is
'Every exclusive queue and every shard, with the worker that holds it, and whether that may claim from it yet.';
