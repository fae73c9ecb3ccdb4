-- Make the shards of a queue, with its policy.

create or replace function dibs._add_shards(queue dibs.queue) returns void
language plpgsql volatile
as $$
begin
  -- Copy the whole row of the queue, so that no column can be forgotten.
  insert into dibs.queue overriding system value
  select n.* from generate_series(1, (queue).shards - 1) as k (shard)
  cross join lateral jsonb_populate_record(queue, jsonb_build_object(
    'id', nextval(pg_get_serial_sequence('dibs.queue', 'id')), 'name', (queue).name || '#' || k.shard,
    'created_at', dibs.now(), 'shards', null, 'shard_of', (queue).id, 'shard', k.shard)) as n
  where not exists (select from dibs.queue as q where q.shard_of = (queue).id and q.shard = k.shard)
  on conflict (name) do nothing;
end
$$;

comment on function dibs._add_shards is
'Make the shards that a queue does not have yet, with its policy and its columns `has_…`. From then on set_queue, pause
and resume change them with the queue.';

create or replace function dibs._make_shards(parent integer) returns void
language plpgsql volatile
as $$
declare
  v_queue dibs.queue := (select q from dibs.queue as q where q.id = parent);
begin
  if v_queue.shards is null then
    if exists (select from dibs.queue as q where q.shard_of = parent) then
      raise exception using errcode = 'DI061',
        message = format('queue %L was split into shards and cannot be an ordinary queue again', v_queue.name),
        hint = 'set shards to 1: one worker at a time then pulls all of it; or use a new queue';
    end if;
    delete from dibs.shard as s where s.queue_id = _make_shards.parent;
    delete from dibs.puller as p where p.parent = _make_shards.parent;
    return;
  end if;
  -- A claim in progress began when the queue was ordinary, so it did not check for a holder.
  perform dibs._stop_claims_or_warn()
  where not exists (select from dibs.shard as s where s.parent = _make_shards.parent);
  if v_queue.shards > 1
    and (v_queue.has_limit or exists (select from dibs.group_policy as p where p.queue_id = parent)) then
    raise exception using errcode = 'DI010',
      message = format('queue %L has its own limit or group policy and cannot be split into shards', v_queue.name),
      hint = 'take it away first, with dibs.drop_limit or dibs.drop_group; limits of kinds and resources may stay';
  end if;
  perform dibs._add_shards(v_queue);
  insert into dibs.shard (queue_id, parent)
  select n, _make_shards.parent from unnest(dibs._queue_numbers(parent)) as n
  on conflict (queue_id) do nothing;
end
$$;

comment on function dibs._make_shards is
'Make the shards that a queue''s policy asks for; for an ordinary queue delete the rows of its holders. A shard is never
deleted: workers go on holding it until it is empty. Raise DI061 or DI010 if the queue cannot have this number.';

create or replace function dibs._refuse_sharded(queue text, what text) returns void
language plpgsql volatile
as $$
begin
  -- Lock the row first: another transaction may be splitting the queue.
  perform from dibs.queue as q where q.name = _refuse_sharded.queue for no key update;
  if (select q.shards > 1 from dibs.queue as q where q.name = _refuse_sharded.queue) then
    raise exception using errcode = 'DI010',
      message = format('queue %L is split into shards, each of which is pulled from alone; it takes no %s',
        queue, what),
      hint = 'limit its kinds or resources, which count for all shards together';
  end if;
end
$$;

comment on function dibs._refuse_sharded is
'Raise DI010 if a queue is split into shards: a limit or policy (`what`) would count for each shard alone.';

create or replace function dibs._lock_shards(parent integer) returns void
language plpgsql volatile
as $$
begin
  perform from dibs.queue as q where q.shard_of = parent order by q.id for no key update;
end
$$;

comment on function dibs._lock_shards is
'Lock the rows of a queue''s shards in the order of their ids, as producers do that set columns `has_…` of several
queues.';
