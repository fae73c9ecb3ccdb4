-- enqueue: → ready. One job, or many in one statement; both in the caller's transaction.

create or replace function dibs._enqueue_batch(
  jobs jsonb, bodies bytea[], fresh boolean, guarded boolean default true, awaited boolean default false)
returns table (item integer, id uuid, outcome text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_needs dibs.batch_needs := dibs._read_batch(jobs);
  v_batch dibs.batch;
  v_same uuid[];
  v_outcomes text[];
  v_ids uuid[];
begin
  if v_needs.jobs = 0 then
    return;
  end if;
  select q.sharded, q.bounded into v_needs.is_sharded, v_needs.is_bounded from dibs._ensure_queues(v_needs.queues, guarded) as q;
  v_needs.is_awaited := awaited;
  -- An older snapshot may still see a queue that was dropped: then this lock raises 40001.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from dibs.queue as q where q.name = any (v_needs.queues) for key share;
  end if;
  if v_needs.is_sharded then
    jobs := dibs._route_jobs(jobs);
    v_needs.queues := array(select distinct e ->> 'queue' from jsonb_array_elements(jobs) as e);
  end if;
  if v_needs.options = 0 and bodies is null and (v_needs.ids = 0 or fresh) and not v_needs.is_bounded then
    v_ids := dibs._insert_bare_jobs(jobs, v_needs.queues, v_now);
  else
    v_batch := dibs._prepare_batch(jobs, bodies, fresh, v_needs, v_now);
    v_same := v_batch.same;
    v_outcomes := v_batch.outcomes;
    v_ids := dibs._insert_batch(jobs, bodies, v_needs.queues, v_batch.ids, v_same, v_batch.hashes, v_outcomes, v_batch.aside, v_now);
  end if;
  if v_needs.groups > 0 then
    perform dibs._add_pointers(v_ids, v_now);
  end if;
  return query
  select d.n::integer, coalesce(v_same[d.n], d.id),
    case when v_same[d.n] is null then coalesce(v_outcomes[d.n], 'enqueued') else 'duplicate' end
  from unnest(v_ids) with ordinality as d (id, n);
end
$$;

comment on function dibs._enqueue_batch is
'Put jobs in. Unless it is `guarded`, the caller may be confined to other queues: the batch is not theirs, but of a schedule. What is
`awaited`, such as a follow-up, is taken by a full queue, too: the work it belongs to was let in.';

create or replace function dibs.enqueue_many(
  jobs jsonb, bodies bytea[] default null, fresh boolean default false)
returns table (item integer, id uuid, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query select e.item, e.id, e.outcome from dibs._enqueue_batch(jobs, bodies, fresh) as e;
end
$$;

comment on function dibs.enqueue_many is
'Put many jobs in, in the caller''s transaction. `jobs` is a JSON array of objects that take the names of `enqueue`''s
arguments, with `body` in base64 and durations in seconds or as intervals. `bodies[i]` is the binary payload of job i.
`fresh` says that the ids given were never sent before, and saves looking them up. Answers for each item, in order: its
place, its id, and `enqueued`, `duplicate` (then the id is that of the job already there), `replaced` (a waiting job
of the same dedup key was cancelled for it) or `sidelined` (the queue is full, and the job waits behind all others).';

create or replace function dibs._enqueue_as_batch(job jsonb, payload jsonb, headers jsonb, body bytea, fresh boolean)
returns dibs.enqueued
language plpgsql volatile
as $$
begin
  return (
    select row(e.id, e.outcome)::dibs.enqueued
    from dibs._enqueue_batch(
      jsonb_build_array(jsonb_strip_nulls(job) || jsonb_build_object('payload', payload, 'headers', headers)),
      case when body is not null then array[body] end, fresh) as e);
end
$$;

comment on function dibs._enqueue_as_batch is 'Put one job in as a batch, which can do everything. In payload and headers, nulls count.';

-- One ordinary job is inserted here; any other goes in as a batch, which can do everything. PL/pgSQL prepares an expression again in
-- every transaction, which costs more than to evaluate it: few and small expressions are quick.
-- A queue that an older snapshot still sees may be gone. Its bell raises 40001 at commit, so a queue that does not ring goes in as a batch.
-- The job is inserted before its ticket: its key refuses an id that is taken, and the client tries again.
create or replace function dibs.enqueue(
  queue text, kind text, payload jsonb default null, body bytea default null, content_type text default null,
  headers jsonb default null, id uuid default null, priority integer default null, delay interval default null,
  due_at timestamptz default null, ttl interval default null, deadline timestamptz default null, lease interval default null,
  lease_growth double precision default null, lease_cap interval default null, max_attempts integer default null,
  backoff jsonb default null, history text default null, dedup_key text default null, shard_key text default null,
  dedup boolean default null, dedup_scope text default null, dedup_for interval default null, on_duplicate text default null,
  "group" text default null, cost integer default null, resources jsonb default null, fresh boolean default false
) returns dibs.enqueued
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_due timestamptz := dibs.now();
  v_stamp constant bigint := date_part('epoch', v_due) * 65536000;
  v_id uuid := id;
  v_size integer;
  v_queue integer;
  v_priority smallint;
  v_ttl interval;
  v_ring boolean;
  v_limit integer;
begin
  select q.id, q.priority, q.ttl, q.ring, q.payload_limit into v_queue, v_priority, v_ttl, v_ring, v_limit from dibs.queue as q
  where q.name = queue and dibs._is_open_queue(q) and num_nonnulls(lease, lease_growth, lease_cap, backoff, dedup_key, dedup,
      dedup_scope, dedup_for, on_duplicate, shard_key, "group", cost, resources) = 0
    and (q.ring or current_setting('transaction_isolation') = 'read committed');
  if id is null then
    v_id := dibs._new_id((v_stamp >> 4) + 1);
  elsif not dibs._is_new_id(id, v_stamp, fresh) then
    v_queue := null;
  end if;
  if v_queue is null then
    return dibs._enqueue_as_batch((select to_jsonb(o) from (select queue, kind, content_type, id, priority, delay, due_at, ttl,
      deadline, lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_key, dedup, dedup_scope, dedup_for,
      on_duplicate, shard_key, "group", cost, resources) as o), payload, headers, body, fresh);
  elsif num_nonnulls(body, content_type, headers, priority, delay, due_at, ttl, deadline, max_attempts, history) > 0
    or not dibs._is_valid_kind(kind) or payload = 'null' or pg_column_size(payload) > dibs._constant('small_job_bytes')
    or octet_length(payload::text) > least(v_limit, dibs._constant('small_job_bytes'))
  then
    payload := nullif(payload, 'null');
    headers := nullif(headers, 'null');
    v_size := dibs._check_job(v_queue, queue, v_limit, kind, payload, body, content_type, headers, priority, delay, due_at,
      ttl, deadline, max_attempts, history, v_due, v_priority);
    v_due := greatest(coalesce(due_at, v_due + delay), v_due);
    v_priority := coalesce(priority, v_priority);
  end if;
  insert into dibs.job (id, due_at, queue_id, priority, kind, payload, body, content_type, headers, deadline, ttl, max_attempts,
    history, size)
  values (v_id, v_due, v_queue, v_priority, kind, payload, body, content_type, headers, deadline, ttl, max_attempts, history, v_size);
  insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, history)
  values (v_id, v_due, dibs._expiry(v_due, coalesce(ttl, v_ttl), deadline), v_queue, 0, 0, 0, v_priority, v_ring, history);
  return row(v_id, 'enqueued')::dibs.enqueued;
end
$$;

comment on function dibs.enqueue is
'Put one job in, in the caller''s transaction. Returns its id and `enqueued`, or `duplicate` with the id of the
job already there. `delay` or `due_at` make it due later; `ttl` counts from when it is due; `backoff` is
{"kind": "constant" | "list" | "exponential", "delays": […], "factor": 2, "cap": …, "jitter": 0.1}. A job with a
`dedup_key`, or with one made from its kind and payload by `dedup`, is a duplicate while another job of its queue holds
that key: until that job ends, or with `dedup_scope` only while it is `waiting`, or with `dedup_for` for that long.
`on_duplicate` is `keep` (answer with the job there), `refuse` (raise DI040) or `replace` (cancel it if it still waits,
and enqueue this one). Groups of a queue take turns, and `cost` is what a job takes of its group''s share (1 if not
given); `resources` are the units it needs of named limits, such as {"gpu": 1}. The same client-made `id` twice is one
job, and `fresh` says that it was never sent before, which saves looking it up; in a sharded queue, jobs of one `shard_key` go to
one shard.';
