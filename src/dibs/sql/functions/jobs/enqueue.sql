-- enqueue: → ready. One job, or many in one statement; both in the caller's transaction.

create or replace function dibs._has_job(id uuid) returns boolean
language plpgsql stable
as $$
begin
  return exists (select from dibs.job as j where j.id = _has_job.id);
end
$$;

comment on function dibs._has_job is 'True if there is a job with this id.';

-- Without a subquery: with one, PL/pgSQL would run a statement for it.
create or replace function dibs._is_new_id(id uuid, stamp bigint, fresh boolean) returns boolean
language sql stable
return uuid_send(id) between int8send(stamp - 86400000::bigint * 65536) and int8send(stamp + 3599999::bigint * 65536)
  and (fresh or not dibs._has_job(id));

comment on function dibs._is_new_id is
'True if no queue refuses an id given by a client for its time (the last day or the next hour), and no job has it.
`stamp` is the present in 1/65536 ms, the unit of the first half of an id. `fresh` says that the id was never sent
before, so that it is not looked up.';

create or replace function dibs._is_open_queue(queue dibs.queue) returns boolean
language sql immutable parallel safe
return (queue).shard_of is null and coalesce((queue).shards, 1) = 1 and not (queue).is_confined
  and num_nonnulls((queue).max_depth, (queue).max_age) = 0;

comment on function dibs._is_open_queue is
'True if a queue has no shards and no bound on its depth, and every producer may use it.';

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

comment on function dibs._enqueue_as_batch is
'Enqueue one job as a batch. `job` has its options, and nulls in it mean that an option is not given; nulls inside
`payload` and `headers` are kept.';

-- PL/pgSQL prepares every expression again in each transaction, and that costs more than evaluating it. So an ordinary
-- job needs few and small expressions here, and numbers in place of _constant; a test compares them. Any other job is
-- enqueued as a batch: then v_queue is null.
--
-- v_stamp is the present in 1/65536 ms, the unit of the first half of an id.
--
-- An older snapshot may still see a queue that was dropped. If the queue rings, the trigger on its ticket raises 40001
-- at commit. If it does not ring, the job is enqueued as a batch, which locks the row of the queue.
--
-- The job is inserted before its ticket: its primary key refuses an id that exists, and the client tries again.
create or replace function dibs.enqueue(
  queue text, kind text, payload jsonb default null, body bytea default null, content_type text default null,
  headers jsonb default null, id uuid default null, priority integer default null, delay interval default null,
  due_at timestamptz default null, ttl interval default null, deadline timestamptz default null,
  lease interval default null, lease_growth double precision default null, lease_cap interval default null,
  max_attempts integer default null, backoff jsonb default null, history text default null, dedup_key text default null,
  shard_key text default null, dedup boolean default null, dedup_scope text default null,
  dedup_for interval default null, on_duplicate text default null, "group" text default null,
  cost integer default null, resources jsonb default null, fresh boolean default false
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
  select q.id, q.priority, q.ttl, q.ring, q.payload_limit into v_queue, v_priority, v_ttl, v_ring, v_limit
  from dibs.queue as q
  where q.name = queue and dibs._is_open_queue(q) and num_nonnulls(lease, lease_growth, lease_cap, backoff, dedup_key,
      dedup, dedup_scope, dedup_for, on_duplicate, shard_key, "group", cost, resources) = 0
    and (q.ring or current_setting('transaction_isolation') = 'read committed');
  if id is null then
    v_id := dibs._new_id((v_stamp >> 4) + 1);
  elsif not dibs._is_new_id(id, v_stamp, fresh) then
    v_queue := null;
  end if;
  if v_queue is null then
    return dibs._enqueue_as_batch((select to_jsonb(o) from (select queue, kind, content_type, id, priority, delay,
      due_at, ttl, deadline, lease, lease_growth, lease_cap, max_attempts, backoff, history, dedup_key, dedup,
      dedup_scope, dedup_for, on_duplicate, shard_key, "group", cost, resources) as o), payload, headers, body, fresh);
  elsif num_nonnulls(body, content_type, headers, priority, delay, due_at, ttl, deadline, max_attempts, history) > 0
    or not dibs._is_valid_kind(kind) or payload = 'null' or pg_column_size(payload) > 6400
    or octet_length(payload::text) > least(v_limit, 6400)  -- small_job_bytes
  then
    payload := nullif(payload, 'null');
    headers := nullif(headers, 'null');
    v_size := dibs._check_job(v_queue, queue, v_limit, kind, payload, body, content_type, headers, priority, delay,
      due_at, ttl, deadline, max_attempts, history, v_due, v_priority);
    v_due := greatest(coalesce(due_at, v_due + delay), v_due);
    v_priority := coalesce(priority, v_priority);
  end if;
  insert into dibs.job (id, due_at, queue_id, priority, kind, payload, body, content_type, headers, deadline, ttl,
    max_attempts, history, size)
  values (v_id, v_due, v_queue, v_priority, kind, payload, body, content_type, headers, deadline, ttl,
    max_attempts, history, v_size);
  insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, history)
  values (v_id, v_due, dibs._expiry(v_due, coalesce(ttl, v_ttl), deadline), v_queue, 0, 0, 0, v_priority, v_ring,
    history);
  return row(v_id, 'enqueued')::dibs.enqueued;
end
$$;

comment on function dibs.enqueue is
'Enqueue one job in the caller''s transaction. Return its id and `enqueued`, or `duplicate` and the id of the job that
exists already. `delay` or `due_at` make it due later; `ttl` counts from when it is due; `backoff` is
{"kind": "constant" | "list" | "exponential", "delays": […], "factor": 2, "cap": …, "jitter": 0.1}. A job with a
`dedup_key`, or with a key made from its kind and payload by `dedup`, is a duplicate while another job of its queue
holds that key: until that job ends, or with `dedup_scope` only while it is `waiting`, or with `dedup_for` for that
long. `on_duplicate` is `keep` (return the id of the other job), `refuse` (raise DI040) or `replace` (cancel the other
job if it still waits, and enqueue this one). Groups of a queue take turns, and `cost` is what a job takes of its
group''s share (1 by default); `resources` are the units that it needs of named limits, such as {"gpu": 1}. The same
`id`, made by a client, is one job however often it is sent; `fresh` says that it was never sent before, which saves a
lookup. In a sharded queue, jobs with the same `shard_key` go to the same shard.';

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
'Enqueue many jobs in the caller''s transaction. `jobs` is a JSON array of objects with the names of `enqueue`''s
arguments, with `body` in base64 and durations in seconds or as intervals. `bodies[i]` is the binary payload of job i.
`fresh` says that the ids given were never sent before, which saves looking them up. Return for each item, in order,
its position, its id, and `enqueued`, `duplicate` (the id is that of the job that exists already), `replaced` (a
waiting job with the same dedup key was cancelled for it) or `sidelined` (the queue is full, and the job has the lowest
priority).';
