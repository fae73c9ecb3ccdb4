-- unpark: blocked → ready, for jobs whose kind a worker runs.

create or replace function dibs._unpark_for_worker(of_worker dibs.worker, max integer) returns integer
language plpgsql volatile
as $$
declare
  v_now timestamptz := dibs.now();
  v_ids uuid[] := array(
    select b.id from dibs.parked_kind as p
    join dibs.queue as q on q.id = p.queue_id
    left join dibs.queue as parent on parent.id = q.shard_of
    cross join lateral (
      select (-b.priority) as rank, b.due_at, b.id from dibs.blocked as b
      where b.queue_id = p.queue_id and b.kind = p.kind and b.kind is not null
      order by (-b.priority), b.due_at, b.id limit max) as b
    where p.kind = any (of_worker.kinds) and of_worker.facts -> 'queues' ? coalesce(parent.name, q.name)
      and q.paused_at is null and (not q.is_confined or coalesce(q.id = any (dibs.confined_to()), true))
    order by b.rank, b.due_at, b.id limit max);
begin
  return coalesce(cardinality(dibs._unblock_tickets(v_ids, v_now, false, v_now)), 0);
end
$$;

comment on function dibs._unpark_for_worker is
'Unblock up to `max` parked jobs whose queue and kind a worker serves, by priority and due time. Return how many.';

create or replace function dibs.unpark(worker uuid, max integer default 100) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform dibs._check_isolation('unpark'), dibs._check_count('unpark', unpark.max);
  if not exists (select from dibs.parked_kind) then
    return 0;
  end if;
  return coalesce((
    select dibs._unpark_for_worker(w, unpark.max) from dibs.worker as w
    where w.id = dibs._worker_number(unpark.worker)), 0);
end
$$;

comment on function dibs.unpark is
'Worker protocol: make up to `max` parked jobs ready again whose queue and kind this worker registered, by priority and
due time. Returns how many. A worker with free slots calls it, and then claims.';

create or replace function dibs._unpark_due(max integer) returns bigint
language plpgsql volatile
as $$
declare
  v_now timestamptz := dibs.now();
  v_ids uuid[] := array(
    select b.id from dibs.blocked as b where b.kind is not null and b.again_at <= v_now order by b.again_at limit max);
begin
  return coalesce(cardinality(dibs._unblock_tickets(v_ids, v_now, true, v_now)), 0);
end
$$;

comment on function dibs._unpark_due is
'Unblock up to `max` parked jobs whose `again_at` has come, whatever their kind: a claim by a caller that is not
registered may take any kind. Return how many.';

create or replace function dibs._forget_parked_kinds() returns void
language plpgsql volatile
as $$
declare
  v_idle dibs.parked_kind[];
begin
  -- Lock the rows, then look again: `park` locks the same row before it parks a job of that kind.
  v_idle := array(
    select p from dibs.parked_kind as p
    where not exists (select from dibs.blocked as b where b.kind = p.kind and b.queue_id = p.queue_id)
    for update skip locked);
  delete from dibs.parked_kind as p using unnest(v_idle) as i
  where p.queue_id = i.queue_id and p.kind = i.kind
    and not exists (select from dibs.blocked as b where b.kind = p.kind and b.queue_id = p.queue_id);
end
$$;

comment on function dibs._forget_parked_kinds is 'Delete the rows of parked_kind for which no job is parked any more.';
