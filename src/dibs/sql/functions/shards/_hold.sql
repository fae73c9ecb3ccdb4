-- Workers hold shards: release, renew and take a hold.

create or replace function dibs._my_quota(parent integer, worker bigint, needed bigint, at timestamptz) returns bigint
language sql stable
begin atomic
  -- The remainder of the division goes to the workers with the lowest numbers, one shard each.
  select needed / count(*)
    + case when count(*) filter (where p.worker < _my_quota.worker) < needed % count(*) then 1 else 0 end
  from dibs.puller as p where p.parent = _my_quota.parent and p.seen_until > at;
end;

comment on function dibs._my_quota is
'The number of shards of a queue that a worker may hold: the `needed` ones divided by the workers that want to pull.
The caller is one of them.';

create or replace function dibs._needed_shards(queue dibs.queue) returns integer[]
language sql stable
return array(
  select s.queue_id from dibs.shard as s join dibs.queue as q on q.id = s.queue_id
  where s.parent = (queue).id and (coalesce(q.shard, 0) < (queue).shards
    or exists (select from dibs.ready as r where r.queue_id = s.queue_id)
    or exists (select from dibs.blocked as b where b.queue_id = s.queue_id)
    or exists (select from dibs.lease as l where l.queue_id = s.queue_id)));

comment on function dibs._needed_shards is
'The shards of a queue that workers have to hold: as many as `shards` says, and further ones in which jobs still wait or
run.';

create or replace function dibs._renew_shards(
  parent integer, worker bigint, needed integer[], quota bigint, until timestamptz, at timestamptz) returns bigint
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_surplus integer[];
begin
  select array_agg(h.queue_id) into v_surplus
  from (
    select s.queue_id, s.queue_id = any (needed) as is_needed,
      row_number() over (order by s.queue_id = any (needed) desc, s.taken_at, s.queue_id) as place
    from dibs.shard as s
    where s.parent = _renew_shards.parent and s.worker = _renew_shards.worker and s.held_until > at) as h
  where not h.is_needed or h.place > quota;
  -- Keep a shard whose row is locked: a claim of this worker is taking jobs from it.
  update dibs.shard as s set worker = null, held_until = null
  where s.queue_id = any (array(
    select o.queue_id from dibs.shard as o
    where o.queue_id = any (v_surplus) and o.worker = _renew_shards.worker and o.held_until > at
    for update skip locked));
  -- FOR NO KEY UPDATE does not conflict with the FOR KEY SHARE of a claim, so these are renewed during claims, too.
  update dibs.shard as s set held_until = until
  where s.queue_id = any (array(
    select o.queue_id from dibs.shard as o
    where o.parent = _renew_shards.parent and o.worker = _renew_shards.worker and o.held_until > at
    for no key update skip locked));
  return (
    select count(*) from dibs.shard as s
    where s.queue_id = any (needed) and s.worker = _renew_shards.worker and s.held_until > at);
end
$$;

comment on function dibs._renew_shards is
'Of the shards of a queue that a worker holds, release those that are not needed and those above its quota, and renew
the others. Return how many needed ones it holds.';

create or replace function dibs._take_free_shards(
  worker bigint, needed integer[], max bigint, until timestamptz, at timestamptz) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  update dibs.shard as s
  set worker = _take_free_shards.worker, held_until = until, taken_at = at, is_drained = false,
    -- The holder that did not renew. After a release there is none: then the one before it, whose runs may not have
    -- ended. Only one is remembered; the runs of earlier ones end with their leases.
    lost_holder = nullif(coalesce(s.worker, s.lost_holder), _take_free_shards.worker)
  where s.queue_id = any (array(
    select f.queue_id from dibs.shard as f
    where f.queue_id = any (needed) and (f.worker is null or f.held_until <= at)
    order by f.queue_id limit max for update skip locked));
end
$$;

comment on function dibs._take_free_shards is
'Take up to `max` of the needed shards that no worker holds, or whose holder did not renew.';

create or replace function dibs._end_lost_runs(parent integer, worker bigint, at timestamptz) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_lost record;
begin
  -- Leases have no index by queue: look at them only after a takeover.
  if not exists (
    select from dibs.shard as s
    where s.parent = _end_lost_runs.parent and s.worker = _end_lost_runs.worker and s.lost_holder is not null) then
    return;
  end if;
  -- The hold has ended by the clock, so its worker has stopped these runs itself, or is dead. Skip locked leases: the
  -- next call tries again.
  select array_agg(l.id order by l.id) as ids, array_agg(l.token order by l.id) as tokens into v_lost
  from (
    select l.id, l.token from dibs.lease as l
    join dibs.shard as s on s.queue_id = l.queue_id and s.lost_holder = l.worker
    where s.parent = _end_lost_runs.parent and s.worker = _end_lost_runs.worker
    order by l.id for update of l skip locked
  ) as l;
  if v_lost.ids is not null then
    perform dibs._end_runs('lost', v_lost.ids, v_lost.tokens, at,
      errors => array_fill('its worker did not renew its hold on the shard'::text, array[cardinality(v_lost.ids)]));
  end if;
end
$$;

comment on function dibs._end_lost_runs is
'End the runs of lost holders in the shards of a queue that a worker has taken from them, as lost.';

create or replace function dibs._balance_shards(queue dibs.queue, worker bigint, at timestamptz) returns integer[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_until timestamptz := at + queue.shard_lease;
  v_needed integer[];
  v_quota bigint;
  v_held bigint;
begin
  -- Several workers may balance at the same moment. Each shard is released, renewed or taken under the lock of its row,
  -- and locked rows are skipped. A worker that did not see a new one takes too many, and releases them the next time.
  insert into dibs.puller as p (parent, worker, seen_until) values (queue.id, _balance_shards.worker, v_until)
  on conflict (parent, worker) do update set seen_until = excluded.seen_until;
  delete from dibs.puller as p where p.ctid = any (array(
    select o.ctid from dibs.puller as o where o.parent = queue.id and o.seen_until <= at for update skip locked));
  v_needed := dibs._needed_shards(queue);
  v_quota := dibs._my_quota(queue.id, _balance_shards.worker, cardinality(v_needed), at);
  v_held := dibs._renew_shards(queue.id, _balance_shards.worker, v_needed, v_quota, v_until, at);
  perform dibs._take_free_shards(_balance_shards.worker, v_needed, greatest(v_quota - v_held, 0), v_until, at);
  perform dibs._end_lost_runs(queue.id, _balance_shards.worker, at);
  -- held_until = v_until: the shards that this call has renewed or taken.
  update dibs.shard as s set is_drained = true, lost_holder = null
  where s.parent = queue.id and s.worker = _balance_shards.worker and s.held_until = v_until and not s.is_drained
    and not exists (
      select from dibs.lease as l where l.queue_id = s.queue_id and l.worker is distinct from _balance_shards.worker);
  return v_needed;
end
$$;

comment on function dibs._balance_shards is
'Give a worker its quota of the needed shards of a queue: release, renew and take shards, and end the runs that a lost
holder left. A shard in which no run of another worker is left becomes drained, so that its holder may claim. Return
the needed shards.';

create or replace function dibs._shard_note(queue_id integer, at timestamptz) returns text
language sql stable
begin atomic
  select coalesce((
    select case
      when s.worker is null or s.held_until <= _shard_note.at
        then '; only one worker at a time pulls from there, and none does now'
      else format('; only worker %s pulls from there, until %s%s', s.worker, dibs._utc_text(s.held_until),
        case when s.is_drained then '' else ', as soon as the runs of the one before have ended' end) end
    from dibs.shard as s where s.queue_id = _shard_note.queue_id), '');
end;

comment on function dibs._shard_note is
'A phrase for `why` that says which worker may claim from an exclusive queue or a shard; empty for any other queue.';
