-- drop_queue: delete a queue that is no longer used.

create or replace function dibs._find_drop_obstacle(name text, queues integer[], since timestamptz) returns text
language sql stable
return case
  when exists (select from dibs.ready as r where r.queue_id = any (queues))
    or exists (select from dibs.blocked as b where b.queue_id = any (queues)) then 'jobs that wait'
  when exists (select from dibs.lease as l where l.queue_id = any (queues)) then 'jobs that run'
  when exists (select from dibs.dead as d where d.queue_id = any (queues)) then 'dead jobs'
  when exists (
    select from dibs.job as j where j.queue_id = any (queues) and (since is null or j.id >= dibs._id_floor(since)))
    then 'jobs that have succeeded and are kept'
  when exists (select from dibs.schedule as s where s.job ->> 'queue' = _find_drop_obstacle.name) then 'a schedule'
  when exists (
    select from dibs.confinement as c where c.queue_id = any (queues) and not exists (
      select from dibs.confinement as o where o.role = c.role and o.queue_id <> all (queues)))
    then 'a role that is confined to it alone, and would be confined no more'
end;

comment on function dibs._find_drop_obstacle is
'Say in a few words why a queue cannot be dropped: which jobs it still has (of the kept ones, only those enqueued since
a time, or all if that is null), a schedule, or a role confined to it alone. Null if nothing stands against it.';

create or replace function dibs._check_droppable(name text, queues integer[], since timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_obstacle text := dibs._find_drop_obstacle(name, queues, since);
begin
  if v_obstacle is not null then
    raise exception using errcode = 'DI062', message = format('queue %L still has %s', name, v_obstacle),
      hint = 'purge what waits, delete what has ended, unset its schedules and confine its roles to other queues first';
  end if;
end
$$;

comment on function dibs._check_droppable is 'Raise DI062 if a queue cannot be dropped.';

create or replace function dibs.drop_queue(name text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
  v_id integer;
  v_ids integer[];
  v_now timestamptz := dibs.now();
begin
  perform dibs._check_isolation('drop_queue'), dibs._begin_change();
  v_id := dibs._queue_number(name);
  v_ids := dibs._queue_numbers(v_id);
  -- Read all kept jobs before the lock, so that nobody has to wait for it.
  perform dibs._check_droppable(name, v_ids, null);
  -- Wait for every transaction that has read the table: one of them may be about to enqueue into this queue.
  lock table dibs.queue in access exclusive mode;
  v_ids := dibs._queue_numbers(v_id);  -- It may have got shards meanwhile.
  -- Only jobs of the last day: older ones were found by the check above.
  perform dibs._check_droppable(name, v_ids, v_now - interval '1 day');
  perform dibs._audit('drop_queue', q.name, detail => to_jsonb(q))
  from dibs.queues as q where q.name = drop_queue.name;
  perform dibs._drop_limit('queue', drop_queue.name, v_now);
  delete from dibs.group_policy as p where p.queue_id = any (v_ids);
  delete from dibs.group_pointer as p where abs(p.queue_id) = any (v_ids);
  delete from dibs.group_gate as p where p.queue_id = any (v_ids);
  delete from dibs.queue_priority as p where p.queue_id = any (v_ids);
  delete from dibs.floor_hint as h where h.queue_id = any (v_ids);
  delete from dibs.shard as s where s.queue_id = any (v_ids);
  delete from dibs.puller as p where p.parent = v_id;
  delete from dibs.supervised_process as p where p.queue_id = any (v_ids);
  delete from dibs.stat as s where s.queue_id = any (v_ids);
  delete from dibs.stat_unrun as s where s.queue_id = any (v_ids);
  delete from dibs.failure_count as e where e.queue_id = any (v_ids);
  delete from dibs.confinement as c where c.queue_id = any (v_ids);
  delete from dibs.bell as b where b.queue_id = any (v_ids);
  delete from dibs.queue as q where q.id = any (v_ids);
  return true;
end
$$;

comment on function dibs.drop_queue is
'Delete a queue with its policy, limits, groups and statistics. It must have no jobs, kept ones included, no schedule,
and no role that is confined to it alone; otherwise raises DI062. Raises DI011 if there is no such queue. Its next job
would create it again.';
