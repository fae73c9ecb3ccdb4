-- One ordinary job goes straight to its two inserts. What is not ordinary goes in as a batch does, which can do everything.

create or replace function dibs._is_recent_id(id uuid, tick bigint) returns boolean
language sql immutable parallel safe
return uuid_send(id) between int8send(((tick >> 12) - 86400000) << 16) and int8send(((tick >> 12) + 3600000) << 16);

comment on function dibs._is_recent_id is 'Whether an id is of the day before that tick, or of the hour after it: no queue refuses such an id.';

create or replace function dibs._check_one(
  kind text, payload jsonb, bytes bytea, content_type text, headers jsonb, header_size integer, priority smallint, delay interval,
  due_at timestamptz, ttl interval, deadline timestamptz, max_attempts integer, history text, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_ord constant bigint := 1;
  v_fine boolean;
begin
  -- An expression costs more to prepare than to evaluate, so each is for those who need it.
  if num_nonnulls(delay, due_at, deadline) > 0 then
    v_fine := dibs._has_good_time(v_ord, delay, due_at, deadline, at);
  end if;
  if num_nonnulls(content_type, headers, priority, ttl, max_attempts, history) > 0 or not dibs._is_good_kind(kind)
    or num_nonnulls(payload, bytes) > 1
  then
    v_fine := dibs._has_good_options(v_ord, kind, priority, ttl, null, null, null, max_attempts, history, null, null, null, null,
      payload, bytes, content_type, headers, header_size, null, null);
  end if;
end
$$;

comment on function dibs._check_one is 'Refuse an ordinary job that breaks a bound, in the words in which a batch is refused.';

create or replace function dibs._insert_one(
  queue text, kind text, payload jsonb, bytes bytea, content_type text, headers jsonb, id uuid, fresh boolean,
  priority smallint, delay interval, due_at timestamptz, ttl interval, deadline timestamptz, max_attempts integer,
  history text) returns uuid
language plpgsql volatile
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_variable
declare
  v_at constant timestamptz := dibs.now();
  v_tick constant bigint := dibs._tick(v_at) + 1;
  v_due timestamptz := v_at;
  v_size integer := coalesce(octet_length(bytes), dibs._size_of(payload), 0);
  v_header_size integer := 0;
  v_id uuid := id;
  v_queue integer;
  v_usual smallint;
  v_ttl interval;
  v_ring boolean;
  v_limit integer;
begin
  select q.id, q.priority, q.ttl, q.ring, q.payload_limit
  into v_queue, v_usual, v_ttl, v_ring, v_limit from dibs.queue as q
  where q.name = queue and q.shard_of is null and not q.is_confined and coalesce(q.shards, 1) = 1
    and num_nonnulls(q.max_depth, q.max_age) = 0;
  if v_queue is null then
    return null;
  elsif id is null then
    v_id := dibs._id_at(v_tick);
  elsif not dibs._is_recent_id(id, v_tick) then
    return null;
  elsif not fresh then
    perform from dibs.job as j where j.id = v_id;
    if found then
      return null;
    end if;
  end if;
  if v_size > v_limit then
    perform dibs._refuse_payload(1, v_size, queue, v_limit);
  end if;
  if num_nonnulls(content_type, headers, priority, delay, due_at, ttl, deadline, max_attempts, history) > 0
    or not dibs._is_good_kind(kind) or num_nonnulls(payload, bytes) > 1
  then
    v_header_size := coalesce(dibs._size_of(headers), 0);
    perform dibs._check_one(kind, payload, bytes, content_type, headers, v_header_size, priority, delay, due_at, ttl, deadline,
      max_attempts, history, v_at);
    v_size := v_size + v_header_size;
    v_due := greatest(coalesce(due_at, v_at + delay), v_at);
    v_ttl := coalesce(ttl, v_ttl);
  end if;
  -- First the job: an id that is taken is known by its key, and tried again.
  insert into dibs.job (id, due_at, queue_id, priority, kind, payload, body, content_type, headers, deadline, ttl,
    max_attempts, history, size)
  values (v_id, v_due, v_queue, coalesce(priority, v_usual), kind, payload, bytes, content_type, headers, deadline, ttl,
    max_attempts, history, case when v_size > dibs._small_size() then v_size end);
  insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, history)
  values (v_id, v_due, dibs._expiry(v_due, v_ttl, deadline), v_queue, 0, 0, 0, coalesce(priority, v_usual), v_ring, history);
  if priority <> v_usual then
    perform dibs._note_priorities(array[v_queue], array[priority]);
  end if;
  if v_size > dibs._large_size() then
    perform dibs._note_large(array[v_queue]);
  end if;
  return v_id;
end
$$;

comment on function dibs._insert_one is
'Insert an ordinary job and its ticket; its id. Refuses one that breaks a bound. Null, and nothing is done, if a job has this
id already, or if its queue is not there yet, has shards, is bounded, or is guarded because some role is confined.';
