-- What makes a queue pulled by one worker at a time. Nobody but the owner calls these.

create or replace function dibs.queue_numbers(id integer) returns integer[]
language sql stable parallel safe
return array(select q.id from dibs.queue as q where q.id = queue_numbers.id or q.shard_of = queue_numbers.id order by q.id);

comment on function dibs.queue_numbers is 'The number of a queue, and those of its shards.';

create or replace function dibs.shown_queue(id integer) returns integer
language sql stable parallel safe
return coalesce((select q.shard_of from dibs.queue as q where q.id = shown_queue.id), id);

comment on function dibs.shown_queue is 'The queue that a shard belongs to; any other queue is itself.';

create or replace function dibs.shard_for(key text, shards integer) returns integer
language sql immutable parallel safe
return ((hashtextextended(key, 20005) % shards + shards) % shards)::integer;

comment on function dibs.shard_for is 'The shard that a key belongs to.';

create or replace function dibs.route_jobs(jobs jsonb) returns jsonb
language sql volatile
return (
  select jsonb_agg(
    case when q.shards > 1 then
      jsonb_set(e.job, '{queue}', to_jsonb(q.name || coalesce('#' || nullif(dibs.shard_for(coalesce(
        e.job ->> 'shard_key', e.job ->> 'group', e.job ->> 'dedup_key', e.job ->> 'id', random()::text), q.shards), 0), '')))
      else e.job end
    order by e.ord)
  from jsonb_array_elements(jobs) with ordinality as e (job, ord)
  left join dibs.queue as q on q.name = e.job ->> 'queue');

comment on function dibs.route_jobs is
'A batch whose jobs for sharded queues are for their shards: by shard_key, else group, else dedup_key, else id, else by chance.';

create or replace function dibs.share_policy(parent integer) returns void
language plpgsql volatile
as $$
begin
  if not exists (select from dibs.queue as q where q.shard_of = parent) then
    return;
  end if;
  -- Whatever a queue has, its shards have: a row is made anew from the queue's, so no column can be forgotten.
  with gone as (
    delete from dibs.queue as q where q.shard_of = parent returning q.*
  )
  insert into dibs.queue overriding system value
  select n.* from gone as g join dibs.queue as q on q.id = parent
  cross join lateral jsonb_populate_record(q, jsonb_build_object(
    'id', g.id, 'name', g.name, 'created_at', g.created_at, 'shards', null, 'shard_of', parent, 'shard', g.shard, 'levels', g.levels, 'checked', g.checked)) as n;
end
$$;

comment on function dibs.share_policy is 'Give the shards of a queue its policy and its switches.';

create or replace function dibs.make_shards(parent integer) returns void
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
    delete from dibs.shard as s where s.queue_id = make_shards.parent;
    delete from dibs.puller as p where p.parent = make_shards.parent;
    return;
  end if;
  if v_queue.shards > 1 and (v_queue.gated or exists (select from dibs.group_policy as p where p.queue_id = parent)) then
    raise exception using errcode = 'DI010',
      message = format('queue %L has a limit or a group policy of its own and cannot be split into shards', v_queue.name),
      hint = 'take it away first, with dibs.unset_limit or dibs.unset_group; limits of kinds and resources may stay';
  end if;
  insert into dibs.queue (name, shard_of, shard)
  select v_queue.name || '#' || n, parent, n from generate_series(1, v_queue.shards - 1) as n
  on conflict (name) do nothing;
  perform dibs.share_policy(parent);
  insert into dibs.shard (queue_id, parent)
  select n, make_shards.parent from unnest(dibs.queue_numbers(parent)) as n
  on conflict (queue_id) do nothing;
end
$$;

comment on function dibs.make_shards is 'Make the shards that a queue''s policy asks for. None is ever taken away: what lies there is served.';

create or replace function dibs.refuse_sharded(queue text, what text) returns void
language plpgsql stable
as $$
begin
  if (select q.shards > 1 from dibs.queue as q where q.name = refuse_sharded.queue) then
    raise exception using errcode = 'DI010',
      message = format('queue %L is split into shards, each of which is pulled from alone; it takes no %s', queue, what),
      hint = 'limit its kinds or resources, which count for all shards together';
  end if;
end
$$;

comment on function dibs.refuse_sharded is 'Refuse what would count for one shard only.';

create or replace function dibs.fence_shard(queue dibs.queue, worker bigint, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- Locked against whoever would take it over, until the claim is committed; a renewal does not wait for us.
  perform from dibs.shard as s
  where s.queue_id = (queue).id and s.worker = fence_shard.worker and s.held_until > at and s.clear
  for key share;
  if not found then
    raise exception using errcode = 'DI060',
      message = format('%s does not hold %L, so it cannot claim from it',
                       coalesce('worker ' || worker, 'a client without a worker''s number'), (queue).name),
      hint = 'one worker at a time pulls from it: hold it with dibs.hold_shards, and claim from the names that answers';
  end if;
end
$$;

comment on function dibs.fence_shard is 'Refuse a claim by anyone but the holder, and keep the holder until the claim has ended.';

create or replace function dibs.my_quota(parent integer, worker bigint, shards bigint) returns bigint
language sql stable
begin atomic
  select shards / count(*) + (count(*) filter (where p.worker < my_quota.worker) < shards % count(*))::integer
  from dibs.puller as p where p.parent = my_quota.parent;
end;

comment on function dibs.my_quota is 'How many shards of a queue are a worker''s share: as many as everybody''s, or one more.';

create or replace function dibs.served_shards(queue dibs.queue) returns integer[]
language sql stable
return array(
  select s.queue_id from dibs.shard as s join dibs.queue as q on q.id = s.queue_id
  where s.parent = (queue).id and (coalesce(q.shard, 0) < (queue).shards
    or exists (select from dibs.ready as r where r.queue_id = s.queue_id)
    or exists (select from dibs.blocked as b where b.queue_id = s.queue_id)
    or exists (select from dibs.lease as l where l.queue_id = s.queue_id)));

comment on function dibs.served_shards is 'The shards of a queue, and those it no longer has but in which something lies.';

create or replace function dibs.hold_queue(queue dibs.queue, worker bigint, at timestamptz) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_until timestamptz := at + queue.shard_lease;
  v_served integer[];
  v_quota bigint;
  v_mine integer[];
  v_taken record;
  v_lost record;
begin
  perform pg_advisory_xact_lock(20005, queue.id);
  insert into dibs.puller as p (parent, worker, seen_until) values (queue.id, hold_queue.worker, v_until)
  on conflict (parent, worker) do update set seen_until = excluded.seen_until;
  delete from dibs.puller as p where p.parent = queue.id and p.seen_until <= at;
  v_served := dibs.served_shards(queue);
  v_quota := dibs.my_quota(queue.id, hold_queue.worker, cardinality(v_served));

  -- What is above our share is let go, unless a claim of ours is at work there just now.
  update dibs.shard as s set worker = null, held_until = null
  where s.queue_id = any (array(
    select o.queue_id from dibs.shard as o
    where o.queue_id = any (array(
      select h.queue_id from dibs.shard as h
      where h.parent = queue.id and h.worker = hold_queue.worker and h.held_until > at
      order by h.queue_id = any (v_served) desc, h.taken_at, h.queue_id offset v_quota))
    for update skip locked));
  update dibs.shard as s set held_until = v_until
  where s.parent = queue.id and s.worker = hold_queue.worker and s.held_until > at;
  v_mine := array(
    select s.queue_id from dibs.shard as s
    where s.parent = queue.id and s.worker = hold_queue.worker and s.held_until > at);

  -- What nobody holds, or nobody renewed, is ours up to our share.
  with free as materialized (
    select s.queue_id, s.worker from dibs.shard as s
    where s.queue_id = any (v_served) and (s.worker is null or s.held_until <= at)
    order by s.queue_id limit greatest(v_quota - cardinality(v_mine), 0)
    for update skip locked
  ), took as (
    update dibs.shard as s set worker = hold_queue.worker, held_until = v_until, taken_at = at, clear = false
    from free as f where s.queue_id = f.queue_id
  )
  select array_agg(f.queue_id) as ids, array_agg(f.worker) as workers into v_taken from free as f;

  -- A holder that did not renew has stopped its runs by then, or is dead: they end as lost, and are tried again.
  select array_agg(l.id order by l.id) as ids, array_agg(l.token order by l.id) as tokens into v_lost
  from (
    select l.id, l.token from dibs.lease as l
    join unnest(v_taken.ids, v_taken.workers) as t (queue_id, worker) on t.queue_id = l.queue_id and t.worker = l.worker
    where l.worker <> hold_queue.worker
    order by l.id for update of l skip locked
  ) as l;
  if v_lost.ids is not null then
    perform dibs.put_back('lost', v_lost.ids, v_lost.tokens,
      array_fill('its worker did not renew its hold on the shard'::text, array[cardinality(v_lost.ids)]), null, null, at);
  end if;
  update dibs.shard as s set clear = true
  where s.parent = queue.id and s.worker = hold_queue.worker and not s.clear
    and not exists (
      select from dibs.lease as l where l.queue_id = s.queue_id and l.worker is distinct from hold_queue.worker);
end
$$;

comment on function dibs.hold_queue is
'Renew what a worker holds of a queue, let go what is above its share, and take what is free up to it.';

create or replace function dibs.shard_note(queue_id integer, at timestamptz) returns text
language sql stable
begin atomic
  select coalesce((
    select case
      when s.worker is null or s.held_until <= shard_note.at then '; only one worker at a time pulls from there, and none does now'
      else format('; only worker %s pulls from there, until %s%s', s.worker, s.held_until,
        case when s.clear then '' else ', as soon as the runs of the one before have ended' end) end
    from dibs.shard as s where s.queue_id = shard_note.queue_id), '');
end;

comment on function dibs.shard_note is 'Who may claim from an exclusive queue or a shard, in words; nothing for any other queue.';
