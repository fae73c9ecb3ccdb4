-- enqueue: → ready. One job, or many in one statement; both in the caller's transaction.

create or replace function dibs.enqueue_many(
  jobs jsonb, bodies bytea[] default null, fresh boolean default false)
returns table (item integer, id uuid, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_tick bigint := dibs._tick(v_now);
  v_ahead uuid := dibs._id_floor(v_now + interval '1 hour');
  v_today uuid := dibs._id_floor(v_now - interval '1 day');  -- no retention is shorter
  v_asked record;
  v_ids uuid[];
  v_same uuid[];
  v_hashes bytea[];
  v_outcomes text[];
  v_queues record;
  v_aside integer[];
  v_done record;
begin
  select a.* into v_asked from dibs._read_batch(jobs) as a;
  if v_asked.jobs = 0 then
    return;
  end if;
  select q.sharded, q.bounded into v_queues from dibs._ensure_queues(v_asked.queues) as q;
  if v_queues.sharded then
    jobs := dibs._route_jobs(jobs);
  end if;
  if v_asked.given > 0 and not fresh then
    v_same := dibs._known_ids(jobs);
  end if;
  if v_asked.resources > 0 then
    perform dibs._note_needs(jobs);
  end if;
  if v_asked.groups > 0 then
    perform dibs._open_groups(jobs, v_now);
  end if;
  if v_asked.keys > 0 then
    select k.ids, k.same, k.hashes, k.outcomes into v_ids, v_same, v_hashes, v_outcomes
    from dibs._take_fingerprints(jobs, bodies, v_same, v_now) as k;
  end if;
  if v_queues.bounded then
    select p.outcomes, p.aside into v_outcomes, v_aside from dibs._check_depth(jobs, v_same, v_now, v_outcomes) as p;
  end if;

  if v_asked.groups > 0 then
    v_outcomes := dibs._check_group_depths(jobs, v_same, v_now, v_outcomes);
  end if;

  with asked as materialized (
    select a.*, coalesce(bodies[a.ord], decode(a.base64, 'base64')) as bytes, q.id as queue_id,
      case when q.id = any (v_aside) or v_outcomes[a.ord] = 'sidelined' then 0 else coalesce(a.priority, q.priority) end as level,
      coalesce(a.id, v_ids[a.ord], dibs._id_at(v_tick + a.ord)) as job_id,
      greatest(coalesce(a.due_at, v_now + a.delay), v_now) as due,
      v_hashes[a.ord] as hash,
      (v_same is null or v_same[a.ord] is null) and (
        octet_length(bodies[a.ord]) > q.payload_limit or pg_column_size(a.payload) > q.payload_limit
        or length(a.base64) * 3 / 4 > q.payload_limit
        or a.delay not between interval '0' and interval '10 years'
        or a.deadline >= timestamptz '9000-01-01'
        or a.due_at > v_now + interval '10 years' or num_nonnulls(a.delay, a.due_at) = 2
        or a.id >= v_ahead
        or case when a.id < v_today then a.id < dibs._id_floor(v_now - q.retention) end) as refused
    from rows from (jsonb_to_recordset(jobs) as (
        id uuid, queue text, kind text, payload jsonb, body text, content_type text, headers jsonb,
        priority smallint, delay interval, due_at timestamptz, ttl interval, deadline timestamptz,
        lease interval, lease_growth double precision, lease_cap interval, max_attempts integer,
        backoff dibs.backoff, history text, dedup_scope text, dedup_for interval, "group" text, cost integer,
        resources jsonb)) with ordinality
      as a (id, queue, kind, payload, base64, content_type, headers, priority, delay, due_at, ttl, deadline,
            lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_scope, dedup_for, group_name, cost, resources,
            ord)
    join dibs.queue as q on q.name = a.queue
  ), new_job as (
    insert into dibs.job (id, due_at, queue_id, priority, kind, payload, body, content_type, headers,
      fingerprint, deadline, ttl, lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_scope, group_name,
      cost, resources)
    select a.job_id, a.due, a.queue_id, a.level, a.kind, a.payload, a.bytes, a.content_type, a.headers,
      a.hash, a.deadline, a.ttl, a.lease, a.lease_growth, a.lease_cap, a.max_attempts, a.backoff, a.history,
      nullif(coalesce(a.dedup_scope, case when a.dedup_for is not null then 'window' end), 'unfinished'), a.group_name,
      a.cost, case when jsonb_typeof(a.resources) <> 'null' then a.resources end
    from asked as a
    where v_same is null or v_same[a.ord] is null
    returning job.*
  ), new_ready as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring,
      own_lease, history, fingerprint, lane, cost)
    select j.id, j.due_at, dibs._expiry(j.due_at, coalesce(j.ttl, q.ttl), j.deadline), j.queue_id, 0, 0, 0,
      j.priority,
      q.ring and j.id in (
        select distinct on (n.queue_id) n.id from new_job as n order by n.queue_id, n.due_at, n.id),
      dibs._own_lease(j.lease, j.lease_growth, j.lease_cap, q, 1), j.history, j.fingerprint,
      dibs._lane_of(j.queue_id, j.group_name), j.cost
    from new_job as j join dibs.queue as q on q.id = j.queue_id
    returning ready.id
  )
  select array_agg(a.job_id order by a.ord) as ids, bool_or(a.refused) as refused,
    (select array_agg(n.id) from new_ready as n) as new
  into v_done from asked as a;

  if v_done.refused then
    perform dibs._refuse_jobs(jobs, bodies, v_now);
  end if;
  if cardinality(v_done.new) = cardinality(v_done.ids) and v_outcomes is null then
    return query select d.n::integer, d.id, 'enqueued' from unnest(v_done.ids) with ordinality as d (id, n);
  else
    return query
    select d.n::integer, coalesce(v_same[d.n], d.id),
      case when v_same[d.n] is null then coalesce(v_outcomes[d.n], 'enqueued') else 'duplicate' end
    from unnest(v_done.ids) with ordinality as d (id, n);
  end if;
end
$$;

comment on function dibs.enqueue_many is
'Put many jobs in, in the caller''s transaction. `jobs` is a JSON array; each object takes the names of
`enqueue`''s arguments (queue, kind, payload, body in base64, content_type, headers, id, priority, delay, due_at, ttl,
deadline, lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_key, dedup, dedup_scope, dedup_for,
on_duplicate, shard_key, group, cost, resources; durations in seconds or as intervals). `bodies[i]` is the i-th job''s binary payload.
`fresh` says that ids given were never sent before, and saves looking them up. Answers for each item, in order: its
place, its id, and `enqueued`, `duplicate` (then the id is that of the job already there), `replaced` (a waiting job
of the same dedup key was cancelled for it) or `sidelined` (the queue is full, and the job waits behind all others).';

create or replace function dibs.enqueue(
  queue text,
  kind text,
  payload jsonb default null,
  body bytea default null,
  content_type text default null,
  headers jsonb default null,
  id uuid default null,
  priority integer default null,
  delay interval default null,
  due_at timestamptz default null,
  ttl interval default null,
  deadline timestamptz default null,
  lease interval default null,
  lease_growth double precision default null,
  lease_cap interval default null,
  max_attempts integer default null,
  backoff jsonb default null,
  history text default null,
  dedup_key text default null,
  shard_key text default null,
  dedup boolean default null,
  dedup_scope text default null,
  dedup_for interval default null,
  on_duplicate text default null,
  "group" text default null,
  cost integer default null,
  resources jsonb default null,
  out job_id uuid,
  out outcome text
)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select e.id, e.outcome
  from dibs.enqueue_many(
    jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
      'queue', queue, 'kind', kind, 'content_type', content_type, 'id', id, 'priority', priority,
      'delay', delay, 'due_at', due_at, 'ttl', ttl, 'deadline', deadline, 'lease', lease,
      'lease_growth', lease_growth, 'lease_cap', lease_cap, 'max_attempts', max_attempts,
      'backoff', backoff, 'history', history, 'dedup_key', dedup_key, 'dedup', dedup, 'dedup_scope', dedup_scope, 'dedup_for', dedup_for,
      'on_duplicate', on_duplicate, 'shard_key', shard_key, 'group', "group", 'cost', cost, 'resources', resources))
      || jsonb_build_object('payload', payload, 'headers', headers)),
    case when body is not null then array[body] end) as e;
end;

comment on function dibs.enqueue is
'Put one job in, in the caller''s transaction. Returns its id and `enqueued`, or `duplicate` with the id of the
job already there. `delay` or `due_at` make it due later; `ttl` counts from when it is due; `backoff` is
{"kind": "constant" | "list" | "exponential", "delays": […], "factor": 2, "cap": …, "jitter": 0.1}. A job with a
`dedup_key`, or with one made of its kind and payload by `dedup`, is a duplicate while another of its queue has that key: while
it waits or runs, or by `dedup_scope` only while it is `waiting`, or by `dedup_for` for that long. `on_duplicate` is `keep`
(answer with the job there), `refuse` (raise DI040) or `replace` (cancel it if it still waits, and enqueue this one). Groups of
a queue take turns, and `cost` is what a job takes of its group''s share (1 if not given); `resources` are the units it needs of
named limits, such as {"gpu": 1}. The same client-made `id` twice is one job; in a sharded queue, jobs of one `shard_key` go to one shard.';
