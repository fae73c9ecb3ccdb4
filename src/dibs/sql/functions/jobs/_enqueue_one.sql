-- What `enqueue` asks about one ordinary job. What is not ordinary goes in as a batch does, which can do everything.

create or replace function dibs._is_recent_id(id uuid, stamp bigint) returns boolean
language sql immutable parallel safe
return uuid_send(id) between int8send(stamp - 86400000::bigint * 65536) and int8send(stamp + 3599999::bigint * 65536);

comment on function dibs._is_recent_id is
'Whether an id is of the day before, or of the hour after, a time in 1/65536 ms, as the first half of an id counts: no queue refuses it.';

create or replace function dibs._check_job(
  queue_id integer, queue text, payload_limit integer, kind text, payload jsonb, bytes bytea, content_type text, headers jsonb,
  priority integer, delay interval, due_at timestamptz, ttl interval, deadline timestamptz, max_attempts integer, history text,
  at timestamptz) returns integer
language plpgsql volatile
as $$
declare
  v_ord constant bigint := 1;
  v_size integer := coalesce(octet_length(bytes), dibs._json_bytes(payload), 0);
  v_header_size constant integer := coalesce(dibs._json_bytes(headers), 0);
  v_fine boolean;
begin
  if v_size > payload_limit then
    perform dibs._refuse_payload(v_ord, v_size, queue, payload_limit);
  end if;
  -- An expression costs more to prepare than to evaluate, so each is for those who need it.
  if num_nonnulls(delay, due_at, deadline) > 0 then
    v_fine := dibs._check_job_time(v_ord, delay, due_at, deadline, at);
  end if;
  if num_nonnulls(content_type, headers, priority, ttl, max_attempts, history) > 0 or not dibs._is_valid_kind(kind)
    or num_nonnulls(payload, bytes) > 1
  then
    v_fine := dibs._check_job_options(v_ord, kind, priority, ttl, null, null, null, max_attempts, history, null, null, null, null,
      payload, bytes, content_type, headers, v_header_size, null, null);
  end if;
  v_size := v_size + v_header_size;
  if v_size > dibs._large_job_bytes() then
    perform dibs._note_large(array[queue_id]);
  end if;
  return case when v_size > dibs._small_job_bytes() then v_size end;
end
$$;

comment on function dibs._check_job is
'Refuse an ordinary job that breaks a bound, in the words in which a batch is refused; its size, or null if that is small.';
