-- A batch of jobs goes in: first what each of them asks of other rooms, if anything, then one statement.

create or replace function dibs._prepare_batch(
  jobs jsonb, bodies bytea[], fresh boolean, needs dibs.batch_needs, at timestamptz) returns dibs.batch
language plpgsql volatile
as $$
declare
  v_batch dibs.batch;
begin
  if needs.ids > 0 and not fresh then
    v_batch.same := dibs._find_existing_ids(jobs);
    perform dibs._refuse_hidden_ids(v_batch.same);
  end if;
  if needs.resources > 0 then
    perform dibs._check_resources(jobs);
  end if;
  if needs.resources > 0 or needs.groups > 0 then
    perform dibs._note_switches(jobs);
  end if;
  if needs.keys > 0 then
    select k.ids, k.same, k.hashes, k.outcomes into v_batch.ids, v_batch.same, v_batch.hashes, v_batch.outcomes
    from dibs._take_dedup_keys(jobs, bodies, v_batch.same, at) as k;
  end if;
  if needs.is_bounded then
    select p.outcomes, p.aside into v_batch.outcomes, v_batch.aside
    from dibs._check_depth(jobs, v_batch.same, needs.is_awaited, at, v_batch.outcomes) as p;
  end if;
  if needs.groups > 0 then
    v_batch.outcomes := dibs._check_group_depths(jobs, v_batch.same, needs.is_awaited, at, v_batch.outcomes);
  end if;
  return v_batch;
end
$$;

comment on function dibs._prepare_batch is
'Ask the other rooms about a batch: which of its jobs are there already, their groups and dedup keys, and whether there
is room for them.';

create or replace function dibs._insert_batch(
  jobs jsonb, bodies bytea[], queues text[], batch dibs.batch, at timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tick bigint := dibs._id_tick(at);
  v_ahead uuid := dibs._id_floor(at + interval '1 hour');
  v_today uuid := dibs._id_floor(at - interval '1 day');  -- no retention is shorter
  -- Separate variables: an element of a large array within a record is slow to find.
  v_given uuid[] := batch.ids;
  v_same uuid[] := batch.same;
  v_hashes bytea[] := batch.hashes;
  v_outcomes text[] := batch.outcomes;
  v_aside integer[] := batch.aside;
  v_done record;
begin
  with named as materialized (
    select q.id, q.name, q.priority, q.payload_limit, q.retention, q.ring, q.ttl, q as policy from dibs.queue as q where q.name = any (queues)
  ), asked as materialized (
    select a.*, coalesce(bodies[a.ordinality], decode(a.body, 'base64')) as bytes, q.id as queue_id,
      q.priority as usual, q.payload_limit, q.retention, q.ring, coalesce(a.ttl, q.ttl) as own_ttl,
      dibs._job_lease(a.lease, a.lease_growth, a.lease_cap, q.policy, 1) as own_lease,
      case when q.id = any (v_aside) or v_outcomes[a.ordinality] = 'sidelined' then dibs._sidelined_priority()
        else coalesce(a.priority, q.priority) end as level,
      coalesce(a.id, v_given[a.ordinality], dibs._new_id(v_tick + a.ordinality)) as job_id,
      greatest(coalesce(a.due_at, at + a.delay), at) as due, v_hashes[a.ordinality] as hash,
      v_same is null or v_same[a.ordinality] is null as is_new,
      coalesce(octet_length(bodies[a.ordinality]), length(a.body) * 3 / 4, dibs._json_bytes(a.payload), 0) as size,
      coalesce(dibs._json_bytes(a.headers), 0) as header_size
    from jsonb_populate_recordset(null::dibs.job_request, jobs) with ordinality as a
    join named as q on q.name = a.queue  -- Few names: so they are hashed, and the jobs keep their order, which indexes like.
  ), new_job as (
    insert into dibs.job (id, due_at, queue_id, priority, kind, payload, body, content_type, headers, fingerprint, deadline,
      ttl, lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_scope, group_name, cost, resources, size)
    select a.job_id, a.due, a.queue_id, a.level, a.kind, a.payload, a.bytes, a.content_type, a.headers,
      a.hash, a.deadline, a.ttl, a.lease, a.lease_growth, a.lease_cap, a.max_attempts, a.backoff, a.history,
      nullif(coalesce(a.dedup_scope, case when a.dedup_for is not null then 'window' end), 'unfinished'),
      a."group", a.cost, case when jsonb_typeof(a.resources) <> 'null' then dibs._whole_units(a.resources) end,
      case when a.size + a.header_size > dibs._small_job_bytes() then a.size + a.header_size end
    from asked as a
    where case when a.is_new then
      (a.size <= a.payload_limit or dibs._refuse_payload(a.ordinality, a.size, a.queue, a.payload_limit))
      and dibs._check_job_time(a.ordinality, a.delay, a.due_at, a.deadline, at)
      and dibs._check_job_id(a.ordinality, a.id, v_ahead, v_today, a.retention, at)
      and dibs._check_job_options(a.ordinality, a.kind, a.priority, a.ttl, a.lease, a.lease_growth, a.lease_cap,
        a.max_attempts, a.history, a.dedup_scope, a."group", a.cost, a.resources, a.payload, a.bytes, a.content_type,
        a.headers, a.header_size, a.dedup_key, a.shard_key) end
    returning 1
  ), new_ready as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history, fingerprint,
      group_key, cost)
    select a.job_id, a.due, dibs._expiry(a.due, a.own_ttl, a.deadline), a.queue_id, 0, 0, 0, a.level,
      a.ring and a.ordinality in (select min(n.ordinality) from asked as n where n.is_new group by n.queue_id),
      a.own_lease, a.history, a.hash, dibs._group_key(a.queue_id, a."group"), a.cost
    from asked as a where a.is_new and (select count(*) from new_job) > 0  -- All jobs first: there they may be refused.
  )
  select array_agg(a.job_id order by a.ordinality) as ids, array_agg(a.queue_id) filter (where a.level <> a.usual) as queues,
    array_agg(a.level) filter (where a.level <> a.usual) as levels,
    array_agg(a.queue_id) filter (where a.size + a.header_size > dibs._large_job_bytes()) as large
  into v_done from asked as a;
  if v_done.levels is not null then
    perform dibs._note_priorities(v_done.queues, v_done.levels::smallint[]);
  end if;
  if v_done.large is not null then
    perform dibs._note_large(v_done.large);
  end if;
  return v_done.ids;
end
$$;

comment on function dibs._insert_batch is
'Insert a batch of jobs and their tickets; the ids of its jobs in order. Refuses a job that breaks a bound.';

create or replace function dibs._insert_bare_jobs(jobs jsonb, queues text[], at timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tick bigint := dibs._id_tick(at);
  v_ahead uuid := dibs._id_floor(at + interval '1 hour');
  v_today uuid := dibs._id_floor(at - interval '1 day');  -- no retention is shorter
  v_ids uuid[];
  v_large integer[];
begin
  with named as materialized (
    select q.id, q.name, q.priority, q.payload_limit, q.retention, q.ring, dibs._expiry(at, q.ttl, null) as expire_at
    from dibs.queue as q where q.name = any (queues)
  ), asked as materialized (  -- Few columns: each costs for every job.
    select a.ordinality, coalesce(a.id, dibs._new_id(v_tick + a.ordinality)) as job_id, q.id as queue_id, q.priority, q.ring,
      q.expire_at, coalesce(dibs._json_bytes(a.payload), 0) as size, a.kind, a.payload, a.queue, q.payload_limit, q.retention
    from rows from (jsonb_to_recordset(jobs) as (queue text, kind text, payload jsonb, id uuid)) with ordinality as a
    join named as q on q.name = a.queue
  ), new_job as (
    insert into dibs.job (id, due_at, queue_id, priority, kind, payload, size)
    select a.job_id, at, a.queue_id, a.priority, a.kind, a.payload, case when a.size > dibs._small_job_bytes() then a.size end
    from asked as a
    where case when a.size <= a.payload_limit or dibs._refuse_payload(a.ordinality, a.size, a.queue, a.payload_limit) then
      dibs._check_job_id(a.ordinality, a.job_id, v_ahead, v_today, a.retention, at)
      and dibs._check_job_options(a.ordinality, a.kind, null, null, null, null, null, null, null, null, null, null, null, a.payload,
        null, null, null, null, null, null) end
    returning 1
  ), new_ready as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)
    select a.job_id, at, a.expire_at, a.queue_id, 0, 0, 0, a.priority,
      a.ring and a.ordinality in (select min(n.ordinality) from asked as n group by n.queue_id)
    from asked as a where (select count(*) from new_job) > 0  -- All jobs first: there they may be refused.
  )
  select array_agg(a.job_id order by a.ordinality), array_agg(a.queue_id) filter (where a.size > dibs._large_job_bytes())
  into v_ids, v_large from asked as a;
  if v_large is not null then
    perform dibs._note_large(v_large);
  end if;
  return v_ids;
end
$$;

comment on function dibs._insert_bare_jobs is 'As _insert_batch, for new jobs that have nothing but a queue, a kind, a payload and an id.';
