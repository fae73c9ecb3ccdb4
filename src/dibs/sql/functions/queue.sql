-- A queue's policy and switches.

create or replace function dibs.set_queue(name text, policy jsonb default '{}') returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_names constant text[] := '{priority,lease,lease_growth,lease_cap,max_attempts,max_losses,backoff,ttl,payload_limit,history,retention,history_retention,ring,shards,shard_lease,max_depth,max_age,when_full,newest_first,sideline}'::text[];
  v_open constant text[] := '{ttl,shards,max_depth,max_age,sideline}'::text[];
  v_unknown text;
begin
  if policy ? 'exclusive' then
    policy := policy - 'exclusive' || jsonb_build_object('shards', case when (policy ->> 'exclusive')::boolean then 1 end);
  end if;
  v_unknown := (select k from jsonb_object_keys(policy) as k where k <> all (v_names) limit 1);
  if v_unknown is not null then
    raise exception using errcode = 'DI010', message = format('a queue has no setting %L', v_unknown),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(v_unknown, v_names)) || '? ', '')
        || 'the settings are ' || array_to_string(v_names, ', ');
  end if;
  v_unknown := (select p.key from jsonb_each(policy) as p where p.value = 'null' and p.key <> all (v_open) limit 1);
  if v_unknown is not null then
    raise exception using errcode = 'DI010', message = format('a queue''s %s cannot be null', v_unknown),
      hint = 'leave it out to keep it as it is; only ' || array_to_string(v_open, ', ') || ' may be null, for none';
  end if;
  insert into dibs.queue (name, checked)
  values (set_queue.name, exists (select from dibs.bound as b where b.scope = 'kind')) on conflict do nothing;
  -- Locked in a statement of its own, so that the next reads what another set_queue has just changed.
  perform from dibs.queue as q where q.name = set_queue.name for update;
  update dibs.queue as q
  set priority = n.priority, lease = n.lease, lease_growth = n.lease_growth, lease_cap = n.lease_cap,
    max_attempts = n.max_attempts, max_losses = n.max_losses, backoff = n.backoff, ttl = n.ttl, payload_limit = n.payload_limit,
    history = n.history, retention = n.retention, history_retention = n.history_retention, ring = n.ring,
    shards = n.shards, shard_lease = n.shard_lease, sideline = n.sideline,
    max_depth = n.max_depth, max_age = n.max_age, when_full = n.when_full, newest_first = n.newest_first
  from (
    select p.* from dibs.queue as o cross join lateral jsonb_populate_record(o, policy) as p
    where o.name = set_queue.name
  ) as n
  where q.name = set_queue.name;
  perform dibs.make_shards(q.id) from dibs.queue as q where q.name = set_queue.name;
end
$$;

comment on function dibs.set_queue is
'Make a queue, or change its policy while it runs: a JSON object of priority, lease, lease_growth, lease_cap,
max_attempts, max_losses, backoff, ttl (null for none), payload_limit, history (all, failures, none), retention,
history_retention, ring, shards (null for an ordinary queue) or exclusive (true is one shard), shard_lease,
max_depth and max_age (null for none), when_full (refuse, sideline), newest_first, sideline (null for none). What is not named stays as it is.';

create or replace function dibs.set_strict(strict boolean) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  update dibs.setting as s set strict = set_strict.strict;
end;

comment on function dibs.set_strict is 'In strict mode an enqueue to a queue that does not exist is refused.';

create or replace function dibs.pause(queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id integer := dibs.queue_number(queue);
begin
  update dibs.queue as q set paused_at = dibs.now() where q.id = v_id and q.paused_at is null;
  if found then
    perform dibs.share_policy(v_id);
    return true;
  end if;
  return false;
end
$$;

comment on function dibs.pause is
'Stop handing out a queue''s jobs, until `resume`. Enqueues go on, running jobs finish, nothing expires. Returns
whether it was running before.';

create or replace function dibs.resume(queue text, extend interval default null,
  out paused_at timestamptz, out late bigint, out extended bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_id integer := dibs.queue_number(queue);
  v_now timestamptz := dibs.now();
begin
  select q.paused_at into resume.paused_at from dibs.queue as q where q.id = v_id for update;
  select count(*) into resume.late
  from (select r.expire_at from dibs.ready as r where r.queue_id = any (dibs.queue_numbers(v_id))
        union all select b.expire_at from dibs.blocked as b where b.queue_id = any (dibs.queue_numbers(v_id))) as w
  where w.expire_at <= v_now;
  resume.extended := 0;
  if resume.extend is not null then
    perform dibs.bounded('resume', resume.extend);
    with more as (
      update dibs.ready as r set expire_at = v_now + resume.extend
      where r.queue_id = any (dibs.queue_numbers(v_id)) and r.expire_at <= v_now returning 1)
    select count(*) into resume.extended from more;
    with more as (
      update dibs.blocked as b set expire_at = v_now + resume.extend
      where b.queue_id = any (dibs.queue_numbers(v_id)) and b.expire_at <= v_now returning 1)
    select resume.extended + count(*) into resume.extended from more;
    perform dibs.reopen_lanes(v_id);
  end if;
  update dibs.queue as q set paused_at = null where q.id = v_id;
  perform dibs.share_policy(v_id);
  if (select q.ring from dibs.queue as q where q.id = v_id) then
    perform pg_notify('dibs', q.name) from dibs.queue as q where q.id = any (dibs.queue_numbers(v_id));
  end if;
end
$$;

comment on function dibs.resume is
'Hand out a queue''s jobs again. Says since when it was paused and how many waiting jobs are past their time; with
`extend` those live that much longer from now, otherwise they expire.';
