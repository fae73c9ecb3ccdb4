-- Who holds a shard, and how many are each workers share.

create or replace function dibs._fence_shard(queue dibs.queue, worker bigint, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- Locked so that no one takes it over, until the claim is committed; a renewal does not wait for us.
  perform from dibs.shard as s
  where s.queue_id = (queue).id and s.worker = _fence_shard.worker and s.held_until > at and s.clear
  for key share;
  if not found then
    raise exception using errcode = 'DI060',
      message = format('%s does not hold %L, so it cannot claim from it',
                       coalesce('worker ' || worker, 'a client that is no worker'), (queue).name),
      hint = 'one worker at a time pulls from it: hold it with dibs.hold_shards, and claim from the names that answers';
  end if;
end
$$;

comment on function dibs._fence_shard is
'Refuse a claim by anyone but the holder, and keep the holder until the claim has ended.';

create or replace function dibs._my_quota(parent integer, worker bigint, shards bigint, at timestamptz) returns bigint
language sql stable
begin atomic
  select shards / count(*) + (count(*) filter (where p.worker < _my_quota.worker) < shards % count(*))::integer
  from dibs.puller as p where p.parent = _my_quota.parent and p.seen_until > at;
end;

comment on function dibs._my_quota is
'How many shards of a queue are a worker''s share: as many as everybody''s, or one more.';

create or replace function dibs._served_shards(queue dibs.queue) returns integer[]
language sql stable
return array(
  select s.queue_id from dibs.shard as s join dibs.queue as q on q.id = s.queue_id
  where s.parent = (queue).id and (coalesce(q.shard, 0) < (queue).shards
    or exists (select from dibs.ready as r where r.queue_id = s.queue_id)
    or exists (select from dibs.blocked as b where b.queue_id = s.queue_id)
    or exists (select from dibs.lease as l where l.queue_id = s.queue_id)));

comment on function dibs._served_shards is
'The shards of a queue, and those it no longer has but in which something lies.';

create or replace function dibs._renew_shards(
  queue dibs.queue, worker bigint, served integer[], quota bigint, until timestamptz, at timestamptz) returns bigint
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  -- Release the shards above the quota, first those that are no longer served. Keep a shard whose row is locked: a claim
  -- of this worker is taking jobs from it.
  update dibs.shard as s set worker = null, held_until = null
  where s.queue_id = any (array(
    select o.queue_id from dibs.shard as o
    where o.worker = _renew_shards.worker and o.held_until > at and o.queue_id = any (array(
      select h.queue_id from dibs.shard as h
      where h.parent = queue.id and h.worker = _renew_shards.worker and h.held_until > at
      order by h.queue_id = any (served) desc, h.taken_at, h.queue_id offset quota))
    for update skip locked));
  update dibs.shard as s set held_until = until
  where s.queue_id = any (array(
    select o.queue_id from dibs.shard as o
    where o.parent = queue.id and o.worker = _renew_shards.worker and o.held_until > at
    for no key update skip locked));
  return (
    select count(*) from dibs.shard as s
    where s.parent = queue.id and s.worker = _renew_shards.worker and s.held_until > at);
end
$$;

comment on function dibs._renew_shards is
'Release the shards of a queue that a worker holds above its quota, and hold the others until a later time. Return how
many it holds.';

create or replace function dibs._take_free_shards(
  worker bigint, served integer[], max bigint, until timestamptz, at timestamptz) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_taken record;
  v_lost record;
begin
  with free as materialized (
    select s.queue_id, s.worker from dibs.shard as s
    where s.queue_id = any (served) and (s.worker is null or s.held_until <= at)
    order by s.queue_id limit max
    for update skip locked
  ), taken as (
    update dibs.shard as s set worker = _take_free_shards.worker, held_until = until, taken_at = at, clear = false
    from free as f where s.queue_id = f.queue_id
  )
  select array_agg(f.queue_id) as ids, array_agg(f.worker) as former_holders into v_taken from free as f;
  -- A former holder that did not renew its hold has stopped its runs by now, or is dead: its runs end as lost.
  select array_agg(l.id order by l.id) as ids, array_agg(l.token order by l.id) as tokens into v_lost
  from (
    select l.id, l.token from dibs.lease as l
    join unnest(v_taken.ids, v_taken.former_holders) as t (queue_id, worker)
      on t.queue_id = l.queue_id and t.worker = l.worker
    where l.worker <> _take_free_shards.worker
    order by l.id for update of l skip locked
  ) as l;
  if v_lost.ids is not null then
    perform dibs._end_runs('lost', v_lost.ids, v_lost.tokens,
      array_fill('its worker did not renew its hold on the shard'::text, array[cardinality(v_lost.ids)]),
      null, null, at);
  end if;
end
$$;

comment on function dibs._take_free_shards is
'Take up to `max` of the served shards that no worker holds, and end the runs that their former holders left. `clear` is
false until no run of another worker is left.';

create or replace function dibs._balance_shards(queue dibs.queue, worker bigint, at timestamptz) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_until timestamptz := at + queue.shard_lease;
  v_served integer[];
  v_quota bigint;
  v_held bigint;
begin
  -- Several workers may decide at the same moment. Each shard is released, renewed or taken under the lock of its row,
  -- and locked rows are skipped. A worker that did not see a new one takes too many, and releases them the next time.
  insert into dibs.puller as p (parent, worker, seen_until) values (queue.id, _balance_shards.worker, v_until)
  on conflict (parent, worker) do update set seen_until = excluded.seen_until;
  delete from dibs.puller as p where p.ctid = any (array(
    select o.ctid from dibs.puller as o where o.parent = queue.id and o.seen_until <= at for update skip locked));
  v_served := dibs._served_shards(queue);
  v_quota := dibs._my_quota(queue.id, _balance_shards.worker, cardinality(v_served), at);
  v_held := dibs._renew_shards(queue, _balance_shards.worker, v_served, v_quota, v_until, at);
  perform dibs._take_free_shards(_balance_shards.worker, v_served, greatest(v_quota - v_held, 0), v_until, at);
  update dibs.shard as s set clear = true
  where s.parent = queue.id and s.worker = _balance_shards.worker and s.held_until = v_until and not s.clear
    and not exists (
      select from dibs.lease as l where l.queue_id = s.queue_id and l.worker is distinct from _balance_shards.worker);
end
$$;

comment on function dibs._balance_shards is
'Give a worker its share of the shards of a queue: release those above it, renew the others, take free ones up to it.';

create or replace function dibs._shard_note(queue_id integer, at timestamptz) returns text
language sql stable
begin atomic
  select coalesce((
    select case
      when s.worker is null or s.held_until <= _shard_note.at
        then '; only one worker at a time pulls from there, and none does now'
      else format('; only worker %s pulls from there, until %s%s', s.worker, dibs._utc_text(s.held_until),
        case when s.clear then '' else ', as soon as the runs of the one before have ended' end) end
    from dibs.shard as s where s.queue_id = _shard_note.queue_id), '');
end;

comment on function dibs._shard_note is
'Who may claim from an exclusive queue or a shard, in words; nothing for any other queue.';
