-- Questions that `enqueue` asks about one ordinary job.

create or replace function dibs._is_recent_id(id uuid, stamp bigint) returns boolean
language sql immutable parallel safe
return uuid_send(id) between int8send(stamp - 86400000::bigint * 65536) and int8send(stamp + 3599999::bigint * 65536);

comment on function dibs._is_recent_id is
'True if an id is from the last day or the next hour, which no queue refuses. `stamp` is the present in 1/65536 ms, the unit of
the first half of an id.';

create or replace function dibs._is_new_id(id uuid, stamp bigint, fresh boolean) returns boolean
language sql stable
return dibs._is_recent_id(id, stamp) and (fresh or (select true from dibs.job as j where j.id = _is_new_id.id) is null);

comment on function dibs._is_new_id is 'True if no job has the id of a client, and no queue refuses it. `fresh`: the client says that it never sent it.';

create or replace function dibs._is_open_queue(queue dibs.queue) returns boolean
language sql immutable parallel safe
return (queue).shard_of is null and coalesce((queue).shards, 1) = 1 and not (queue).is_confined
  and num_nonnulls((queue).max_depth, (queue).max_age) = 0;

comment on function dibs._is_open_queue is 'True if a queue takes any job of anybody, without shards and bounds on its depth.';

create or replace function dibs._check_job(
  queue_id integer, queue text, payload_limit integer, kind text, payload jsonb, bytes bytea, content_type text, headers jsonb,
  priority integer, delay interval, due_at timestamptz, ttl interval, deadline timestamptz, max_attempts integer, history text,
  at timestamptz, queue_priority smallint) returns integer
language plpgsql volatile
as $$
declare
  v_ord constant bigint := 1;
  v_size integer := coalesce(octet_length(bytes), dibs._json_bytes(payload), 0);
  v_header_size constant integer := coalesce(dibs._json_bytes(headers), 0);
  v_passed boolean;
begin
  -- An expression costs more to prepare than to evaluate, so each is only for jobs that need it.
  if v_size > payload_limit then
    v_passed := dibs._check_payload_size(v_ord, v_size, queue, payload_limit);
  end if;
  if num_nonnulls(delay, due_at, deadline) > 0 then
    v_passed := dibs._check_job_time(v_ord, delay, due_at, deadline, at);
  end if;
  if num_nonnulls(content_type, headers, priority, ttl, max_attempts, history) > 0 or not dibs._is_valid_kind(kind)
    or num_nonnulls(payload, bytes) > 1
  then
    v_passed := dibs._check_job_options(v_ord, kind, payload, bytes, content_type, headers, v_header_size, priority, ttl,
      max_attempts, history);
  end if;
  v_size := v_size + v_header_size;
  if v_size > dibs._constant('large_job_bytes') then
    perform dibs._note_large(array[queue_id]);
  end if;
  if priority <> queue_priority then
    perform dibs._note_priorities(array[queue_id], array[priority]::smallint[]);
  end if;
  return case when v_size > dibs._constant('small_job_bytes') then v_size end;
end
$$;

comment on function dibs._check_job is
'Refuse an ordinary job that breaks a bound, in the words in which a batch is refused. Note an unusual priority and a large size for
claims. Return the size of payload and headers in bytes, or null if that is small.';
