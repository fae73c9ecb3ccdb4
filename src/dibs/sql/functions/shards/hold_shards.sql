-- hold_shards, release_shards: hold exclusive queues and shards, and release them.

create or replace function dibs.hold_shards(worker uuid, queues text[])
returns table (queue text, shard integer, name text, held_until timestamptz, claimable boolean, again interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_worker bigint;
  v_queue dibs.queue;
  v_needed integer[] := '{}'::integer[];
begin
  perform dibs._check_isolation('hold_shards');
  if coalesce(cardinality(queues), 0) = 0 then
    raise exception using errcode = 'DI010', message = 'hold_shards needs the names of the queues to hold',
      hint = 'such as: select * from dibs.hold_shards(worker, array[''orders''])';
  end if;
  v_worker := dibs._worker_number(hold_shards.worker);
  if dibs._is_confined() then
    perform dibs._check_queue_access(queues);
  end if;
  for v_queue in
    select q.* from dibs.queue as q where q.name = any (queues) and q.shards is not null order by q.id
  loop
    v_needed := v_needed || dibs._balance_shards(v_queue, v_worker, v_now);
  end loop;
  return query
  select k.name, null::integer, k.name, null::timestamptz, true, interval '30 seconds'
  from unnest(queues) as k (name)
  where not exists (select from dibs.queue as q where q.name = k.name and q.shards is not null)
  union all
  -- A queue of which the worker holds nothing has one row, which says when to call again.
  select p.name, coalesce(c.shard, 0)::integer, c.name, s.held_until, coalesce(s.is_drained, false),
    greatest(least(p.shard_lease / 3,
      (select min(o.held_until) - v_now from dibs.shard as o
       where o.parent = p.id and o.queue_id = any (v_needed) and o.worker <> v_worker),
      case when not s.is_drained then interval '0.2 seconds' end), interval '0.1 seconds')
  from dibs.queue as p
  left join (
    dibs.shard as s join dibs.queue as c on c.id = s.queue_id
  ) on s.parent = p.id and s.worker = v_worker and s.held_until > v_now
  where p.name = any (queues) and p.shards is not null
  order by 1, 2;
end
$$;

comment on function dibs.hold_shards is
'Worker protocol: hold a worker''s share of exclusive queues and shards: take, renew and release holds. Call it again
after `again`. Returns a row for each hold: claim from `name` until `held_until`, as soon as it is `claimable` (the runs
of former holders have ended). A queue of which the worker holds nothing has a row without a name. Any other name is
returned as it is, always claimable.';

create or replace function dibs.release_shards(worker uuid, queues text[] default null) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_worker bigint := dibs._worker_number(release_shards.worker);
  v_parents integer[] := array(
    select q.id from dibs.queue as q where queues is null or q.name = any (queues) order by q.id);
  v_released bigint;
begin
  perform dibs._check_isolation('release_shards');
  if dibs._is_confined() then
    perform dibs._check_queue_access(queues);
  end if;
  delete from dibs.puller as p where p.worker = v_worker and p.parent = any (v_parents);
  with held as materialized (
    select s.queue_id from dibs.shard as s where s.worker = v_worker and s.parent = any (v_parents)
    order by s.queue_id for update
  ), released as (
    update dibs.shard as s set worker = null, held_until = null from held as h where s.queue_id = h.queue_id returning 1
  )
  select count(*) into v_released from released;
  return v_released;
end
$$;

comment on function dibs.release_shards is
'Worker protocol: release the exclusive queues and shards that a worker holds, of these queues or of all. Its running
jobs go on; the next holder may claim when they have ended. Returns how many it held, with those that had run out.';
