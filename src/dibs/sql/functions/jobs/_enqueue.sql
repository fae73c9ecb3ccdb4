-- A batch of jobs is enqueued: read it, decide about duplicates and bounds, then insert it in one statement.

create or replace function dibs._read_batch(batch jsonb) returns dibs.batch_needs
language plpgsql immutable
as $$
declare
  v_names constant text[] := dibs._field_names('dibs.job_request');
  v_bare constant text[] := '{queue,kind,payload,id}'::text[];
  v_dedup constant text[] := '{dedup_key,dedup,dedup_scope,dedup_for,on_duplicate}'::text[];
  v_unknown text;
  v_wrong text;
  v_needs dibs.batch_needs;
begin
  if coalesce(jsonb_typeof(batch), 'null') <> 'array' then
    raise exception using errcode = 'DI010',
      message = format('enqueue_many takes a JSON array of jobs, not %s',
                       coalesce('a JSON ' || jsonb_typeof(batch), 'null')),
      hint = 'pass [{"queue": "mail", "kind": "welcome", "payload": {}}, …]';
  end if;
  if jsonb_array_length(batch) > dibs._constant('batch_bound') then
    raise exception using errcode = 'DI010',
      message = format('enqueue_many takes at most %s jobs at once, not %s', dibs._constant('batch_bound'),
                       jsonb_array_length(batch)),
      hint = 'split it into several calls';
  end if;
  -- `options` is null for a bare job, as most jobs are; then none of the functions on it is called.
  select count(*), count(*) filter (where b.job ? 'id'), count(b.options),
    count(*) filter (where b.options ?| v_dedup), count(b.options ->> 'group'), count(b.options ->> 'resources'),
    array_agg(distinct coalesce(b.job ->> 'queue', '')),
    min((select k from jsonb_object_keys(b.options) as k where k <> all (v_names) limit 1))
      filter (where jsonb_typeof(b.options) = 'object' and b.options - v_names <> '{}'),
    min(jsonb_typeof(b.options)) filter (where jsonb_typeof(b.options) <> 'object')
  into v_needs.jobs, v_needs.ids, v_needs.options, v_needs.keys, v_needs.groups, v_needs.resources, v_needs.queues,
    v_unknown, v_wrong
  from (
    select e as job, case when jsonb_typeof(e) = 'object' then nullif(e - v_bare, '{}') else e end as options
    from jsonb_array_elements(batch) as e offset 0
  ) as b;
  if v_wrong is not null then
    raise exception using errcode = 'DI010',
      message = format('each job of a batch is a JSON object, not a JSON %s', v_wrong),
      hint = 'pass [{"queue": "mail", "kind": "welcome", "payload": {}}, …]';
  end if;
  if v_unknown is not null then
    perform dibs._refuse_unknown_name('DI010', 'job', 'option', v_unknown, v_names);
  end if;
  return v_needs;
end
$$;

comment on function dibs._read_batch is
'Count how many jobs of a batch use which options. Raise DI010 if it is no array of objects, is too long, or has an
unknown option.';

create or replace function dibs._prepare_batch(
  jobs jsonb, bodies bytea[], fresh boolean, needs dibs.batch_needs, at timestamptz) returns dibs.prepared_batch
language plpgsql volatile
as $$
declare
  v_batch dibs.prepared_batch;
begin
  if needs.ids > 0 and not fresh then
    -- A job is a duplicate if its id exists, or stands earlier in the batch.
    v_batch.duplicate_of := (
      select array_agg(case when j.id is not null or e.nth > 1 then e.id end order by e.ord)
      from (
        select (e.job ->> 'id')::uuid as id, e.ord,
          row_number() over (partition by (e.job ->> 'id')::uuid order by e.ord) as nth
        from jsonb_array_elements(jobs) with ordinality as e (job, ord)
      ) as e
      left join lateral (select j.id from dibs.job as j where j.id = e.id offset 0) as j on true);
    perform dibs._refuse_hidden_ids(v_batch.duplicate_of);
  end if;
  if needs.resources > 0 then
    perform dibs._check_resources(jobs);
  end if;
  if needs.resources > 0 or needs.groups > 0 then
    perform dibs._note_switches(jobs);
  end if;
  if needs.keys > 0 then
    select k.ids, k.duplicate_of, k.hashes, k.outcomes
    into v_batch.ids, v_batch.duplicate_of, v_batch.hashes, v_batch.outcomes
    from dibs._take_dedup_keys(jobs, bodies, v_batch.duplicate_of, at) as k;
  end if;
  if needs.is_bounded then
    v_batch.outcomes := dibs._check_depth(jobs, v_batch.duplicate_of, needs.is_follow_up, at, v_batch.outcomes);
  end if;
  if needs.groups > 0 then
    v_batch.outcomes := dibs._check_group_depths(jobs, v_batch.duplicate_of, needs.is_follow_up, at, v_batch.outcomes);
  end if;
  return v_batch;
end
$$;

comment on function dibs._prepare_batch is
'Decide about a batch before it is inserted: which jobs are duplicates, which dedup keys they take, and whether there is
room for them. Note in their queues that there are groups and resources.';

-- Inlined into the statement of `_insert_batch`. The queues of a batch are few, so they are hashed, and the jobs keep
-- their order, which suits the indexes.
create or replace function dibs._resolve_requests(
  jobs jsonb, bodies bytea[], queues text[], ids uuid[], duplicate_of uuid[], hashes bytea[], outcomes text[],
  at timestamptz, tick bigint)
returns table (
  queue text, kind text, payload jsonb, body text, content_type text, headers jsonb, id uuid, priority integer,
  delay interval, due_at timestamptz, ttl interval, deadline timestamptz, lease interval, lease_growth double precision,
  lease_cap interval, max_attempts integer, backoff dibs.backoff, history text, dedup_key text, dedup boolean,
  dedup_scope text, dedup_for interval, on_duplicate text, shard_key text, "group" text, cost integer, resources jsonb,
  ord bigint, bytes bytea, queue_id integer, queue_priority smallint, payload_limit integer, retention interval,
  ring boolean, own_lease interval, job_priority integer, job_id uuid, due timestamptz, own_ttl interval, hash bytea,
  is_new boolean, size integer, header_size integer)
language sql stable
begin atomic
  with named as materialized (
    select q.id, q.name, q.priority, q.payload_limit, q.retention, q.ring, q.ttl, q as policy
    from dibs.queue as q where q.name = any (queues)
  )
  select a.*, coalesce(bodies[a.ordinality], decode(a.body, 'base64')),
    q.id, q.priority, q.payload_limit, q.retention, q.ring,
    dibs._job_lease(a.lease, a.lease_growth, a.lease_cap, q.policy, 1),
    case when outcomes[a.ordinality] = 'sidelined' then dibs._sidelined_priority()
      else coalesce(a.priority, q.priority) end,
    coalesce(a.id, ids[a.ordinality], dibs._new_id(tick + a.ordinality)),
    greatest(coalesce(a.due_at, at + a.delay), at),
    coalesce(a.ttl, q.ttl),
    hashes[a.ordinality],
    duplicate_of is null or duplicate_of[a.ordinality] is null,
    coalesce(octet_length(bodies[a.ordinality]), length(a.body) * 3 / 4, dibs._json_bytes(a.payload), 0),
    coalesce(dibs._json_bytes(a.headers), 0)
  from jsonb_populate_recordset(null::dibs.job_request, jobs) with ordinality as a
  join named as q on q.name = a.queue;
end;

comment on function dibs._resolve_requests is
'Return the jobs of a batch: first the columns of `job_request` as they were sent, then the values that their queues and
`_prepare_batch` decide. `ids` to `outcomes` are the fields of `prepared_batch`; `tick` is `at` in the unit of new
ids.';

create or replace function dibs._insert_batch(
  jobs jsonb, bodies bytea[], queues text[], ids uuid[], duplicate_of uuid[], hashes bytea[], outcomes text[],
  at timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tick bigint := dibs._id_tick(at);
  v_future uuid := dibs._id_floor(at + interval '1 hour');
  v_recent uuid := dibs._id_floor(at - interval '1 day');  -- No retention is shorter.
  v_done record;
begin
  with asked as materialized (
    select * from dibs._resolve_requests(jobs, bodies, queues, ids, duplicate_of, hashes, outcomes, at, v_tick)
  ), new_job as (
    insert into dibs.job (id, due_at, queue_id, priority, kind, payload, body, content_type, headers, fingerprint,
      deadline, ttl, lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_scope, group_name, cost,
      resources, size)
    select a.job_id, a.due, a.queue_id, a.job_priority, a.kind, a.payload, a.bytes, a.content_type, a.headers,
      a.hash, a.deadline, a.ttl, a.lease, a.lease_growth, a.lease_cap, a.max_attempts, a.backoff, a.history,
      nullif(coalesce(a.dedup_scope, case when a.dedup_for is not null then 'window' end), 'unfinished'),
      a."group", a.cost, case when jsonb_typeof(a.resources) <> 'null' then dibs._whole_units(a.resources) end,
      case when a.size + a.header_size > dibs._constant('small_job_bytes') then a.size + a.header_size end
    from asked as a
    where case when a.is_new then
      dibs._check_payload_size(a.ord, a.size, a.queue, a.payload_limit)
      and dibs._check_job_time(a.ord, a.delay, a.due_at, a.deadline, at)
      and dibs._check_job_id(a.ord, a.id, v_future, v_recent, a.retention, at)
      and dibs._check_job_options(a.ord, a.kind, a.payload, a.bytes, a.content_type, a.headers, a.header_size,
        a.priority, a.ttl, a.max_attempts, a.history)
      and dibs._check_batch_options(a.ord, a.lease, a.lease_growth, a.lease_cap, a.dedup_scope, a.dedup_key,
        a.shard_key, a."group", a.cost, a.resources) end
    returning 1
  ), new_ready as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
      fingerprint, group_key, cost)
    select a.job_id, a.due, dibs._expiry(a.due, a.own_ttl, a.deadline), a.queue_id, 0, 0, 0, a.job_priority,
      a.ring and a.ord in (select min(n.ord) from asked as n where n.is_new group by n.queue_id),
      a.own_lease, a.history, a.hash, dibs._group_key(a.queue_id, a."group"), a.cost
    from asked as a where a.is_new and (select count(*) from new_job) > 0  -- First all jobs, which may be refused.
  )
  select array_agg(a.job_id order by a.ord) as ids,
    array_agg(a.queue_id) filter (where a.job_priority <> a.queue_priority) as queues,
    array_agg(a.job_priority) filter (where a.job_priority <> a.queue_priority) as priorities,
    array_agg(a.queue_id) filter (where a.size + a.header_size > dibs._constant('large_job_bytes')) as large_queues
  into v_done from asked as a;
  if v_done.priorities is not null then
    perform dibs._note_priorities(v_done.queues, v_done.priorities::smallint[]);
  end if;
  if v_done.large_queues is not null then
    perform dibs._note_large(v_done.large_queues);
  end if;
  return v_done.ids;
end
$$;

comment on function dibs._insert_batch is
'Insert the jobs of a batch, except duplicates, and their tickets. Return the ids of all in order. Refuse a job that
breaks a bound. `ids` to `outcomes` are the fields of `prepared_batch`.';

-- The checks are in the order in which `_insert_batch` has them, so that both refuse a job in the same words.
create or replace function dibs._insert_bare_jobs(jobs jsonb, queues text[], at timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tick bigint := dibs._id_tick(at);
  v_future uuid := dibs._id_floor(at + interval '1 hour');
  v_recent uuid := dibs._id_floor(at - interval '1 day');  -- No retention is shorter.
  v_ids uuid[];
  v_large_queues integer[];
begin
  with named as materialized (
    select q.id, q.name, q.priority, q.payload_limit, q.retention, q.ring, dibs._expiry(at, q.ttl, null) as expire_at
    from dibs.queue as q where q.name = any (queues)
  ), asked as materialized (  -- Few columns: each costs for every job.
    select a.ordinality, coalesce(a.id, dibs._new_id(v_tick + a.ordinality)) as job_id, q.id as queue_id, q.priority,
      q.ring, q.expire_at, coalesce(dibs._json_bytes(a.payload), 0) as size, a.kind, a.payload, a.queue,
      q.payload_limit, q.retention
    from rows from (jsonb_to_recordset(jobs) as (queue text, kind text, payload jsonb, id uuid)) with ordinality as a
    join named as q on q.name = a.queue
  ), new_job as (
    insert into dibs.job (id, due_at, queue_id, priority, kind, payload, size)
    select a.job_id, at, a.queue_id, a.priority, a.kind, a.payload,
      case when a.size > dibs._constant('small_job_bytes') then a.size end
    from asked as a
    where case when dibs._check_payload_size(a.ordinality, a.size, a.queue, a.payload_limit) then
      dibs._check_job_id(a.ordinality, a.job_id, v_future, v_recent, a.retention, at)
      and dibs._check_kind(a.ordinality, a.kind) end
    returning 1
  ), new_ready as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)
    select a.job_id, at, a.expire_at, a.queue_id, 0, 0, 0, a.priority,
      a.ring and a.ordinality in (select min(n.ordinality) from asked as n group by n.queue_id)
    from asked as a where (select count(*) from new_job) > 0  -- First all jobs, which may be refused.
  )
  select array_agg(a.job_id order by a.ordinality),
    array_agg(a.queue_id) filter (where a.size > dibs._constant('large_job_bytes'))
  into v_ids, v_large_queues from asked as a;
  if v_large_queues is not null then
    perform dibs._note_large(v_large_queues);
  end if;
  return v_ids;
end
$$;

comment on function dibs._insert_bare_jobs is
'Insert a batch of bare jobs, which have only a queue, a kind, a payload and an id, none of them a duplicate. Do and say
the same as `_insert_batch`, at less cost.';

create or replace function dibs._enqueue_batch(
  jobs jsonb, bodies bytea[], fresh boolean, guarded boolean default true, is_follow_up boolean default false)
returns table (item integer, id uuid, outcome text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_needs dibs.batch_needs := dibs._read_batch(jobs);
  v_batch dibs.prepared_batch;
  v_duplicate_of uuid[];
  v_outcomes text[];
  v_ids uuid[];
begin
  if v_needs.jobs = 0 then
    return;
  end if;
  select q.sharded, q.bounded into v_needs.is_sharded, v_needs.is_bounded
  from dibs._ensure_queues(v_needs.queues, guarded) as q;
  v_needs.is_follow_up := is_follow_up;
  -- An older snapshot may still see a queue that was dropped: then this lock raises 40001.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from dibs.queue as q where q.name = any (v_needs.queues) for key share;
  end if;
  if v_needs.is_sharded then
    jobs := dibs._route_jobs(jobs);  -- From here on, the queues are those of the shards.
    v_needs.queues := array(select distinct e ->> 'queue' from jsonb_array_elements(jobs) as e);
  end if;
  if v_needs.options = 0 and bodies is null and (v_needs.ids = 0 or fresh) and not v_needs.is_bounded then
    v_ids := dibs._insert_bare_jobs(jobs, v_needs.queues, v_now);
  else
    v_batch := dibs._prepare_batch(jobs, bodies, fresh, v_needs, v_now);
    v_duplicate_of := v_batch.duplicate_of;
    v_outcomes := v_batch.outcomes;
    v_ids := dibs._insert_batch(jobs, bodies, v_needs.queues, v_batch.ids, v_duplicate_of, v_batch.hashes, v_outcomes,
      v_now);
  end if;
  if v_needs.groups > 0 then
    perform dibs._add_pointers(v_ids, v_now);
  end if;
  return query
  select d.n::integer, coalesce(v_duplicate_of[d.n], d.id),
    case when v_duplicate_of[d.n] is null then coalesce(v_outcomes[d.n], 'enqueued') else 'duplicate' end
  from unnest(v_ids) with ordinality as d (id, n);
end
$$;

comment on function dibs._enqueue_batch is
'Enqueue a batch of jobs; `enqueue_many` says what it takes and returns. If not `guarded`, a caller that is confined to
other queues may enqueue them: they are the jobs of a schedule. A full queue also takes a batch that `is_follow_up`,
because the queue accepted the job that is now completed.';
