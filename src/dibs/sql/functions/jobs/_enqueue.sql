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

-- Inlined into its caller's statement. Queues are few, so they are hashed, and the jobs keep their order, which suits the indexes.
create or replace function dibs._resolve_requests(
  jobs jsonb, bodies bytea[], queues text[], ids uuid[], same uuid[], hashes bytea[], outcomes text[], aside integer[],
  at timestamptz, tick bigint)
returns table (
  queue text, kind text, payload jsonb, body text, content_type text, headers jsonb, id uuid, priority integer, delay interval,
  due_at timestamptz, ttl interval, deadline timestamptz, lease interval, lease_growth double precision, lease_cap interval,
  max_attempts integer, backoff dibs.backoff, history text, dedup_key text, dedup boolean, dedup_scope text, dedup_for interval,
  on_duplicate text, shard_key text, "group" text, cost integer, resources jsonb, ord bigint, bytes bytea, queue_id integer,
  queue_priority smallint, payload_limit integer, retention interval, ring boolean, own_lease interval, job_priority integer,
  job_id uuid, due timestamptz, own_ttl interval, hash bytea, is_new boolean, size integer, header_size integer)
language sql stable
begin atomic
  with named as materialized (
    select q.id, q.name, q.priority, q.payload_limit, q.retention, q.ring, q.ttl, q as policy
    from dibs.queue as q where q.name = any (queues)
  )
  select a.*, coalesce(bodies[a.ordinality], decode(a.body, 'base64')), q.id, q.priority, q.payload_limit, q.retention, q.ring,
    dibs._job_lease(a.lease, a.lease_growth, a.lease_cap, q.policy, 1),
    case when q.id = any (aside) or outcomes[a.ordinality] = 'sidelined' then dibs._sidelined_priority()
      else coalesce(a.priority, q.priority) end,
    coalesce(a.id, ids[a.ordinality], dibs._new_id(tick + a.ordinality)),
    greatest(coalesce(a.due_at, at + a.delay), at),
    coalesce(a.ttl, q.ttl), hashes[a.ordinality], same is null or same[a.ordinality] is null,
    coalesce(octet_length(bodies[a.ordinality]), length(a.body) * 3 / 4, dibs._json_bytes(a.payload), 0),
    coalesce(dibs._json_bytes(a.headers), 0)
  from jsonb_populate_recordset(null::dibs.job_request, jobs) with ordinality as a
  join named as q on q.name = a.queue;
end;

comment on function dibs._resolve_requests is
'Return the jobs of a batch as requested, and with everything that is decided for them: by their queues and by `_prepare_batch`. `tick` is
`at` as new ids count it.';

create or replace function dibs._insert_batch(
  jobs jsonb, bodies bytea[], queues text[], given uuid[], same uuid[], hashes bytea[], outcomes text[], aside integer[],
  at timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tick bigint := dibs._id_tick(at);
  v_ahead uuid := dibs._id_floor(at + interval '1 hour');
  v_today uuid := dibs._id_floor(at - interval '1 day');  -- No retention is shorter.
  v_done record;
begin
  with asked as materialized (
    select * from dibs._resolve_requests(jobs, bodies, queues, given, same, hashes, outcomes, aside, at, v_tick)
  ), new_job as (
    insert into dibs.job (id, due_at, queue_id, priority, kind, payload, body, content_type, headers, fingerprint, deadline,
      ttl, lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_scope, group_name, cost, resources, size)
    select a.job_id, a.due, a.queue_id, a.job_priority, a.kind, a.payload, a.bytes, a.content_type, a.headers,
      a.hash, a.deadline, a.ttl, a.lease, a.lease_growth, a.lease_cap, a.max_attempts, a.backoff, a.history,
      nullif(coalesce(a.dedup_scope, case when a.dedup_for is not null then 'window' end), 'unfinished'),
      a."group", a.cost, case when jsonb_typeof(a.resources) <> 'null' then dibs._whole_units(a.resources) end,
      case when a.size + a.header_size > dibs._constant('small_job_bytes') then a.size + a.header_size end
    from asked as a
    where case when a.is_new then
      dibs._check_payload_size(a.ord, a.size, a.queue, a.payload_limit)
      and dibs._check_job_time(a.ord, a.delay, a.due_at, a.deadline, at)
      and dibs._check_job_id(a.ord, a.id, v_ahead, v_today, a.retention, at)
      and dibs._check_job_options(a.ord, a.kind, a.payload, a.bytes, a.content_type, a.headers, a.header_size, a.priority, a.ttl,
        a.max_attempts, a.history)
      and dibs._check_batch_options(a.ord, a.lease, a.lease_growth, a.lease_cap, a.dedup_scope, a.dedup_key, a.shard_key,
        a."group", a.cost, a.resources) end
    returning 1
  ), new_ready as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history, fingerprint,
      group_key, cost)
    select a.job_id, a.due, dibs._expiry(a.due, a.own_ttl, a.deadline), a.queue_id, 0, 0, 0, a.job_priority,
      a.ring and a.ord in (select min(n.ord) from asked as n where n.is_new group by n.queue_id),
      a.own_lease, a.history, a.hash, dibs._group_key(a.queue_id, a."group"), a.cost
    from asked as a where a.is_new and (select count(*) from new_job) > 0  -- All jobs first: there they may be refused.
  )
  select array_agg(a.job_id order by a.ord) as ids, array_agg(a.queue_id) filter (where a.job_priority <> a.queue_priority) as queues,
    array_agg(a.job_priority) filter (where a.job_priority <> a.queue_priority) as priorities,
    array_agg(a.queue_id) filter (where a.size + a.header_size > dibs._constant('large_job_bytes')) as large
  into v_done from asked as a;
  if v_done.priorities is not null then
    perform dibs._note_priorities(v_done.queues, v_done.priorities::smallint[]);
  end if;
  if v_done.large is not null then
    perform dibs._note_large(v_done.large);
  end if;
  return v_done.ids;
end
$$;

comment on function dibs._insert_batch is
'Insert a batch of jobs and their tickets, and return the ids of the jobs in order. Refuse a job that breaks a bound. The arrays come
from `_prepare_batch`; see the type `batch`.';

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
    select a.job_id, at, a.queue_id, a.priority, a.kind, a.payload,
      case when a.size > dibs._constant('small_job_bytes') then a.size end
    from asked as a
    where case when dibs._check_payload_size(a.ordinality, a.size, a.queue, a.payload_limit) then  -- In this order, as _insert_batch.
      dibs._check_job_id(a.ordinality, a.job_id, v_ahead, v_today, a.retention, at) and dibs._check_kind(a.ordinality, a.kind) end
    returning 1
  ), new_ready as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)
    select a.job_id, at, a.expire_at, a.queue_id, 0, 0, 0, a.priority,
      a.ring and a.ordinality in (select min(n.ordinality) from asked as n group by n.queue_id)
    from asked as a where (select count(*) from new_job) > 0  -- All jobs first: there they may be refused.
  )
  select array_agg(a.job_id order by a.ordinality),
    array_agg(a.queue_id) filter (where a.size > dibs._constant('large_job_bytes'))
  into v_ids, v_large from asked as a;
  if v_large is not null then
    perform dibs._note_large(v_large);
  end if;
  return v_ids;
end
$$;

comment on function dibs._insert_bare_jobs is 'As _insert_batch, for new jobs that have nothing but a queue, a kind, a payload and an id.';
