-- A queue's policy, and whether queues must be made before they are used.

create or replace function dibs.set_queue(name text, policy jsonb default '{}') returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_names constant text[] := '{priority,lease,lease_growth,lease_cap,max_attempts,max_losses,backoff,ttl,payload_limit,history,retention,history_retention,ring,shards,shard_lease,max_depth,max_age,when_full,newest_first,noisy_share}'::text[];
  v_open constant text[] := '{ttl,shards,max_depth,max_age,noisy_share}'::text[];
  v_null text;
begin
  if policy ? 'exclusive' then
    policy := policy - 'exclusive' || jsonb_build_object('shards', case when (policy ->> 'exclusive')::boolean then 1 end);
  end if;
  perform dibs._check_names('DI010', 'queue', 'setting', policy, v_names);
  v_null := (select p.key from jsonb_each(policy) as p where p.value = 'null' and p.key <> all (v_open) limit 1);
  if v_null is not null then
    raise exception using errcode = 'DI010', message = format('a queue''s %s cannot be null', v_null),
      hint = 'leave it out to keep it as it is; only ' || array_to_string(v_open, ', ') || ' may be null, for none';
  end if;
  insert into dibs.queue (name, has_job_limits)
  values (set_queue.name, exists (select from dibs.limit_rule as b where b.scope = 'kind')) on conflict do nothing;
  -- Locked in a statement of its own, so that the next reads what another set_queue has just changed.
  perform from dibs.queue as q where q.name = set_queue.name for update;
  update dibs.queue as q
  set priority = n.priority, lease = n.lease, lease_growth = n.lease_growth, lease_cap = n.lease_cap,
    max_attempts = n.max_attempts, max_losses = n.max_losses, backoff = n.backoff, ttl = n.ttl, payload_limit = n.payload_limit,
    history = n.history, retention = n.retention, history_retention = n.history_retention, ring = n.ring,
    shards = n.shards, shard_lease = n.shard_lease, noisy_share = n.noisy_share,
    max_depth = n.max_depth, max_age = n.max_age, when_full = n.when_full, newest_first = n.newest_first
  from (
    select p.* from dibs.queue as o cross join lateral jsonb_populate_record(o, policy) as p
    where o.name = set_queue.name
  ) as n
  where q.name = set_queue.name;
  perform dibs._make_shards(q.id) from dibs.queue as q where q.name = set_queue.name;
end
$$;

comment on function dibs.set_queue is
'Make a queue, or change its policy while it runs: a JSON object of priority, lease, lease_growth, lease_cap,
max_attempts, max_losses, backoff, ttl (null for none), payload_limit, history (all, failures, none), retention,
history_retention, ring, shards (null for an ordinary queue) or exclusive (true is one shard), shard_lease,
max_depth and max_age (null for none), when_full (refuse, sideline), newest_first, noisy_share (null for none). What is not named stays as it is.';

create or replace function dibs.set_strict(strict boolean) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  update dibs.setting as s set strict = set_strict.strict;
end;

comment on function dibs.set_strict is 'In strict mode an enqueue to a queue that does not exist is refused.';
