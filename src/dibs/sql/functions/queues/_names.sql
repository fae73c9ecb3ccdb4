-- Find queues by name, and create them on first use.

-- Volatile: it may wait for drop_queue, and must then look with a new snapshot. Once it has read the table, its
-- transaction keeps the queue alive: drop_queue waits for every transaction that has read it.
create or replace function dibs._queue_number(name text) returns integer
language plpgsql volatile
as $$
declare
  v_id integer := (select q.id from dibs.queue as q where q.name = _queue_number.name);
begin
  if dibs._is_confined() then
    perform dibs._check_queue_access(array[name]);
  end if;
  if v_id is null then
    perform dibs._refuse_unknown('DI011', format('there is no queue %L', name), name,
      array(select q.name from dibs.queue as q), 'a queue exists from its first job, or from dibs.set_queue');
  end if;
  return v_id;
end
$$;

comment on function dibs._queue_number is
'The id of a queue by its name; raise DI011 if there is none, and 42501 if the caller, being confined, may not use it.';

create or replace function dibs._ensure_queues(
  names text[], guarded boolean default true, out sharded boolean, out bounded boolean)
language plpgsql volatile
as $$
declare
  v_to_check text[];
  v_missing text[];
begin
  select array_agg(n.name) filter (where q.is_confined is not false), coalesce(bool_or(q.sharded), false),
    coalesce(bool_or(q.bounded), false)
  into v_to_check, sharded, bounded
  from unnest(names) as n (name)
  left join lateral (
    select q.is_confined, q.shards > 1 as sharded, num_nonnulls(q.max_depth, q.max_age) > 0 as bounded
    from dibs.queue as q where q.name = n.name and q.shard_of is null offset 0) as q on true;
  if v_to_check is null then  -- All queues exist, and none is confined.
    return;
  end if;
  if guarded then
    perform dibs._check_queue_access(v_to_check);
  end if;
  v_missing := array(
    select k from unnest(v_to_check) as k
    where not exists (select from dibs.queue as q where q.name = k and q.shard_of is null) order by k);
  if v_missing <> '{}' then
    perform dibs._create_queues(v_missing);
  end if;
  -- Another transaction may have created one of them meanwhile, and set its policy.
  select sharded or coalesce(bool_or(q.shards > 1), false),
    bounded or coalesce(bool_or(num_nonnulls(q.max_depth, q.max_age) > 0), false)
  into sharded, bounded from dibs.queue as q where q.name = any (v_to_check);
end
$$;

comment on function dibs._ensure_queues is
'Create those of the queues that do not exist (see _create_queues). If `guarded`, raise 42501 for a queue that the
caller may not use. `sharded` is true if one of them has shards, `bounded` if one has a max_depth or a max_age.';

create or replace function dibs._create_queues(missing text[]) returns void
language plpgsql volatile
as $$
begin
  if '' = any (missing) then
    raise exception using errcode = 'DI010', message = 'a job needs a queue; it has none or an empty one',
      hint = 'give "queue" in each job, such as "queue": "mail"';
  end if;
  if (select strict from dibs.setting) then
    perform dibs._refuse_unknown('DI011',
      format('there is no queue %L, and this database is strict about queues', missing[1]), missing[1],
      array(select q.name from dibs.queue as q), format('make it with: select dibs.set_queue(%L)', missing[1]));
  end if;
  if (select count(*) from dibs.queue) + cardinality(missing) > dibs._constant('queues_bound') then
    raise exception using errcode = 'DI010',
      message = format('a database has at most %s queues', dibs._constant('queues_bound')),
      hint = 'put what differs from job to job into the kind, the group or the payload, not into the name of the queue';
  end if;
  insert into dibs.queue (name) select unnest(missing) on conflict do nothing;
end
$$;

comment on function dibs._create_queues is
'Create queues for their first jobs. Raise DI011 in strict mode, and DI010 for an empty name or too many queues.';

create or replace function dibs._note_switches(jobs jsonb) returns void
language plpgsql volatile
as $$
begin
  -- Happens once in the life of a queue. Rows are locked by id, so that two producers cannot deadlock.
  update dibs.queue as q set has_groups = q.has_groups or n.groups, has_job_limits = q.has_job_limits or n.resources
  from (
    select o.id, b.groups, b.resources from (
      select e.job ->> 'queue' as name, bool_or(e.job ->> 'group' is not null) as groups,
        bool_or(coalesce(jsonb_typeof(e.job -> 'resources') = 'object', false)) as resources
      from jsonb_array_elements(jobs) as e (job) group by 1) as b
    join dibs.queue as o on o.name = b.name
    where b.groups and not o.has_groups or b.resources and not o.has_job_limits
    order by o.id for update of o
  ) as n
  where q.id = n.id;
end
$$;

comment on function dibs._note_switches is
'Set `has_groups` and `has_job_limits` of the queues of these jobs, where a job has a group or names a resource.';
