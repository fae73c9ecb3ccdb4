-- set_queue: create a queue or change its policy; set_strict: must queues be created before they are used?

create or replace function dibs._audited_policy(policy jsonb) returns jsonb
language sql immutable strict parallel safe
begin atomic
  select coalesce(jsonb_object_agg(p.key, case when p.value = 'null' then '"none"' else p.value end), '{}')
  from jsonb_each(policy) as p;
end;

comment on function dibs._audited_policy is
'Replace null by the text `none` in a policy: the audit drops nulls, and would lose that a setting was removed.';

create or replace function dibs._read_policy(policy jsonb) returns jsonb
language plpgsql stable
as $$
declare
  v_names constant text[] := dibs._field_names('dibs.queue_policy');
  v_nullable constant text[] := array(
    select n from unnest(v_names) as n
    join pg_catalog.pg_attribute as a on a.attrelid = 'dibs.queue'::regclass and a.attname = n and not a.attnotnull
    order by array_position(v_names, n));
  v_null text;
begin
  if policy ? 'exclusive' then
    policy := policy - 'exclusive'
      || jsonb_build_object('shards', case when (policy ->> 'exclusive')::boolean then 1 end);
  end if;
  perform dibs._check_json_keys('DI010', 'queue', 'setting', policy, v_names);
  v_null := (select p.key from jsonb_each(policy) as p where p.value = 'null' and p.key <> all (v_nullable) limit 1);
  if v_null is not null then
    raise exception using errcode = 'DI010', message = format('a queue''s %s cannot be null', v_null),
      hint = 'leave it out to keep it as it is; only ' || array_to_string(v_nullable, ', ') || ' may be null, for none';
  end if;
  return policy;
end
$$;

comment on function dibs._read_policy is
'Check the policy that set_queue was given, and replace `exclusive` by `shards`. Raise DI010 for a setting that does not
exist, or that is null and may not be.';

create or replace function dibs._write_policy(queue text, policy jsonb) returns void
language plpgsql volatile
as $$
begin
  perform dibs._lock_shards(q.id) from dibs.queue as q where q.name = _write_policy.queue;
  -- Jobs of the old priority may still wait, so claims must go on looking for it.
  perform dibs._note_priorities(array_agg(q.id), array_agg(q.priority)) from dibs.queue as q
  where policy ? 'priority' and (q.name = _write_policy.queue or q.shard_of = (
    select o.id from dibs.queue as o where o.name = _write_policy.queue)) having count(*) > 0;
  -- Set only the settings, and on shards as well: a producer may set a switch of the same row at this moment.
  update dibs.queue as q
  set priority = n.priority, lease = n.lease, lease_growth = n.lease_growth, lease_cap = n.lease_cap,
    max_attempts = n.max_attempts, max_losses = n.max_losses, backoff = n.backoff, ttl = n.ttl,
    payload_limit = n.payload_limit, history = n.history, retention = n.retention,
    history_retention = n.history_retention, ring = n.ring,
    shards = case when q.shard_of is null then n.shards end, shard_lease = n.shard_lease,
    max_depth = n.max_depth, max_age = n.max_age, when_full = n.when_full, newest_first = n.newest_first,
    noisy_share = n.noisy_share, history_since = case
      when (q.history, q.history_retention) = (n.history, n.history_retention) then q.history_since else dibs.now() end
  from (
    select p.* from dibs.queue as o cross join lateral jsonb_populate_record(o, policy) as p
    where o.name = _write_policy.queue
  ) as n
  where q.id = n.id or q.shard_of = n.id;
end
$$;

comment on function dibs._write_policy is
'Write the settings that `policy` names into the row of a queue, which the caller has locked, and of its shards.';

create or replace function dibs.set_queue(name text, policy jsonb default '{}') returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_policy constant jsonb := dibs._read_policy(policy);
  v_is_new boolean;
  v_old jsonb;
  v_new jsonb;
begin
  if dibs._is_confined() then
    perform dibs._check_queue_access(array[name]);
  end if;
  perform dibs._begin_change() where v_policy ? 'shards';  -- New shards may stop the claims for a moment.
  insert into dibs.queue (name) values (set_queue.name) on conflict do nothing;
  v_is_new := found;
  -- Lock first, so that the next statements read what another set_queue has just changed.
  perform from dibs.queue as q where q.name = set_queue.name for update;
  v_old := (select to_jsonb(q) from dibs.queues as q where q.name = set_queue.name and not v_is_new);
  perform dibs._write_policy(set_queue.name, v_policy);
  perform dibs._make_shards(q.id) from dibs.queue as q where q.name = set_queue.name;
  v_new := (select to_jsonb(q) from dibs.queues as q where q.name = set_queue.name);
  if v_new is distinct from v_old then
    perform dibs._audit('set_queue', set_queue.name, detail => jsonb_build_object(
      'policy', dibs._audited_policy(v_policy),
      'before', (select dibs._audited_policy(jsonb_object_agg(k, v_old -> k)) from jsonb_object_keys(v_policy) as k
        where v_old is not null)));
  end if;
end
$$;

comment on function dibs.set_queue is
'Create a queue, or change its policy while it runs. `policy` is a JSON object of settings, named as in the view
`queues`; settings that are left out stay as they are. Null means none for ttl, max_depth, max_age and noisy_share, and
an ordinary queue for shards; `exclusive` true is one shard, false none. history is all, failures or none; when_full is
refuse or sideline.';

create or replace function dibs.set_strict(strict boolean) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  update dibs.setting as s set strict = set_strict.strict;
  select dibs._audit('set_strict', detail => jsonb_build_object('strict', set_strict.strict));
end;

comment on function dibs.set_strict is
'Turn strict mode on or off. In strict mode, an enqueue to a queue that does not exist is refused.';
