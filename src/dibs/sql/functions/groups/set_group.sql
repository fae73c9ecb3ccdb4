-- set_group, drop_group: weight and limits of groups.

create or replace function dibs.set_group(queue text, name text default null, policy jsonb default '{}') returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_names constant text[] := '{weight,concurrency,rate,burst,max_depth,max_age}'::text[];
  v_queue integer;
  v_group_key uuid;
  v_old dibs.group_policy;
  v_new dibs.group_policy;
begin
  perform dibs._check_isolation('set_group');
  perform dibs._check_json_keys('DI010', 'group', 'setting', policy, v_names);
  if policy ? 'weight' and policy -> 'weight' = 'null' then
    raise exception using errcode = 'DI010', message = 'a group''s weight cannot be null',
      hint = 'the usual weight is 1';
  end if;
  if length(set_group.name) not between 1 and 200 or set_group.name ~ '[[:cntrl:]]' then
    raise exception using errcode = 'DI010', message = format(
      'a group''s name has 1 to 200 characters and no control characters, not %L', left(set_group.name, 80));
  end if;
  perform dibs._begin_change();
  perform dibs._ensure_queues(array[set_group.queue]);
  perform dibs._refuse_sharded(set_group.queue, 'group policy');
  v_queue := dibs._queue_number(set_group.queue);
  v_group_key := coalesce(dibs._group_key(v_queue, set_group.name), dibs._nil_id());
  -- Lock the queue: the next statement reads the policy that a call before this one wrote.
  perform from dibs.queue as q where q.id = v_queue for no key update;
  -- A group without its own policy begins with the one for all groups.
  select p.* into v_old from dibs._find_group_policy(v_queue, v_group_key) as p;
  v_old.weight := coalesce(v_old.weight, 1);
  v_new := jsonb_populate_record(v_old, policy);
  if v_new.rate is null then
    v_new.burst := null;
  end if;
  insert into dibs.group_policy (queue_id, group_key, name, weight, concurrency, rate, burst, max_depth, max_age)
  values (v_queue, v_group_key, set_group.name, v_new.weight, v_new.concurrency, v_new.rate, v_new.burst,
    v_new.max_depth, v_new.max_age)
  on conflict (queue_id, group_key) do update
  set weight = excluded.weight, concurrency = excluded.concurrency, rate = excluded.rate, burst = excluded.burst,
    max_depth = excluded.max_depth, max_age = excluded.max_age;
  perform dibs._apply_group_policy(v_queue, v_group_key),
    dibs._audit('set_group', set_group.queue, detail => jsonb_build_object('group', set_group.name, 'policy', policy));
end
$$;

comment on function dibs.set_group is
'Set the policy of a group while it runs: a JSON object of `weight` (its share against other groups, 1 to 1000),
`concurrency` (the number of its jobs that run at once; 1 is strict order), `rate` (starts a second) and `burst`,
`max_depth` and `max_age` (how many of its jobs may wait, and how long; later ones are refused or sidelined, as the
queue''s when_full says). Null takes a limit away. Settings that are not named stay as they are. Without a name the
policy is for every group of the queue without its own.';

create or replace function dibs.drop_group(queue text, name text default null) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue integer;
  v_group_key uuid;
begin
  perform dibs._check_isolation('drop_group'), dibs._begin_change();
  v_queue := dibs._queue_number(drop_group.queue);
  v_group_key := coalesce(dibs._group_key(v_queue, drop_group.name), dibs._nil_id());
  perform from dibs.queue as q where q.id = v_queue for no key update;
  delete from dibs.group_policy as p
  where p.queue_id = v_queue and p.group_key = v_group_key;
  if not found then
    return false;
  end if;
  perform dibs._apply_group_policy(v_queue, v_group_key),
    dibs._audit('drop_group', drop_group.queue, detail => jsonb_build_object('group', drop_group.name));
  return true;
end
$$;

comment on function dibs.drop_group is
'Take away the policy of a group, or, without a name, the one for all groups of a queue. Returns true if one was set.';
