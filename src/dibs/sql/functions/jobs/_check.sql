-- Checks of a job's options. They take the place of constraints on `job`: PostgreSQL would print a row that breaks a
-- constraint into the server's log, with its payload. The SQL functions are inlined into the statement that inserts, so
-- a check costs no more than a constraint.

create or replace function dibs._refuse(code text, message text, hint text) returns boolean
language plpgsql volatile
as $$
begin
  raise exception using errcode = code, message = message, hint = hint;
end
$$;

comment on function dibs._refuse is
'Raise an error. It is volatile, so that the planner does not call it early for a check that passes.';

create or replace function dibs._refuse_job(ord bigint, expected text) returns boolean
language plpgsql volatile
as $$
begin
  raise exception using errcode = '23514', message = format('job %s is refused: expected %s', ord, expected);
end
$$;

comment on function dibs._refuse_job is
'Raise 23514 for the job at position `ord` of its batch, saying what is expected of it.';

create or replace function dibs._check_payload_size(ord bigint, size integer, queue text, payload_limit integer)
returns boolean
language sql volatile
return case
  when size > payload_limit then dibs._refuse('DI012',
    format('the payload of job %s has %s bytes; queue %L takes at most %s', ord, size, queue, payload_limit),
    'store it elsewhere and send its address, or raise the queue''s payload_limit')
  else true
end;

comment on function dibs._check_payload_size is
'Return true, or raise DI012 if a payload is larger than its queue takes.';

create or replace function dibs._check_job_time(
  ord bigint, delay interval, due_at timestamptz, deadline timestamptz, at timestamptz) returns boolean
language sql volatile
return case
  when delay not between interval '0' and interval '10 years' or due_at > at + interval '10 years'
    or num_nonnulls(delay, due_at) = 2 then dibs._refuse('DI010',
      format('job %s cannot be due then: delay %s, due_at %s', ord, coalesce(delay::text, 'none'),
             coalesce(due_at::text, 'none')),
      'give either a delay from 0 to 10 years, or a due_at at most 10 years ahead')
  when deadline not between timestamptz '0001-01-02' and timestamptz '9000-01-01' then dibs._refuse('DI010',
    format('job %s has the deadline %s, which is too far away', ord, deadline),
    'give a deadline from the year 1 to the year 9000, or none')
  else true
end;

comment on function dibs._check_job_time is
'Return true, or raise DI010 if a job cannot be due then, or has a deadline that no client can read.';

create or replace function dibs._check_job_id(
  ord bigint, id uuid, future uuid, recent uuid, retention interval, at timestamptz) returns boolean
language sql volatile
return case
  when id >= future or case when id < recent then id < dibs._id_floor(at - retention) end then dibs._refuse('DI013',
    format('job %s has the id %s, whose time %s is more than an hour ahead or older than retention', ord, id,
           dibs.id_time(id)),
    'ids are UUIDv7 by the database''s clock: make them with dibs.make_id(), or give none')
  else true
end;

comment on function dibs._check_job_id is
'Return true, or raise DI013 if the time of an id is more than an hour ahead (from the id `future` on), or older than
the retention of its queue. An id from `recent` on passes without the second test, which is slow.';

create or replace function dibs._is_valid_kind(kind text) returns boolean
language sql immutable parallel safe
return coalesce(kind <> '' and length(kind) <= 200 and kind not like E'%\n%', false);  -- name_bound; see enqueue

comment on function dibs._is_valid_kind is 'True if a kind has 1 to 200 characters on one line.';

create or replace function dibs._check_kind(ord bigint, kind text) returns boolean
language sql volatile
return dibs._is_valid_kind(kind) or dibs._refuse_job(ord, 'a kind of 1 to 200 characters on one line');

comment on function dibs._check_kind is 'Return true, or raise 23514 if the kind of a job is not valid.';

create or replace function dibs._check_job_options(
  ord bigint, kind text, payload jsonb, body bytea, content_type text, headers jsonb, header_size integer,
  priority integer, ttl interval, max_attempts integer, history text) returns boolean
language sql volatile
return case
  when not dibs._is_valid_kind(kind) then dibs._check_kind(ord, kind)
  when priority not between -100 and 100 then dibs._refuse_job(ord, 'a priority from -100 to 100')
  when payload is not null and body is not null then dibs._refuse_job(ord, 'either a JSON payload or bytes, not both')
  when length(content_type) not between 1 and dibs._constant('name_bound') or content_type ~ '[[:cntrl:]]'
    then dibs._refuse_job(ord, 'a content type of 1 to 200 printable characters')
  when jsonb_typeof(headers) <> 'object' or header_size > dibs._constant('headers_bound')
    then dibs._refuse_job(ord, 'headers that are a JSON object of at most 65536 bytes')
  when ttl <= interval '0' or ttl > interval '10 years'
    then dibs._refuse_job(ord, 'a TTL above 0 and up to 10 years, or none')
  when max_attempts not between 1 and 10000 then dibs._refuse_job(ord, '1 to 10000 attempts')
  when history not in ('all', 'failures', 'none') then dibs._refuse_job(ord, 'a history of all, failures or none')
  else true
end;

comment on function dibs._check_job_options is
'Return true, or raise 23514 for the first bad option of a job: one of the options that every job may have.';

create or replace function dibs._check_batch_options(
  ord bigint, lease interval, lease_growth double precision, lease_cap interval, dedup_scope text, dedup_key text,
  shard_key text, "group" text, cost integer, resources jsonb) returns boolean
language sql volatile
return case
  when lease not between interval '100 milliseconds' and interval '7 days'
    then dibs._refuse_job(ord, 'a lease from 0.1 s to 7 days')
  when lease_growth not between 1 and 100 then dibs._refuse_job(ord, 'a lease growth from 1 to 100')
  when lease_cap not between interval '100 milliseconds' and interval '7 days'
    then dibs._refuse_job(ord, 'a lease cap from 0.1 s to 7 days')
  when dedup_scope not in ('waiting', 'unfinished', 'window')
    then dibs._refuse_job(ord, 'a dedup_scope of waiting, unfinished or window')
  when length(dedup_key) > dibs._constant('key_bound') or length(shard_key) > dibs._constant('key_bound')
    then dibs._refuse_job(ord, 'a key of at most 2000 characters')
  when length("group") not between 1 and dibs._constant('name_bound') or "group" ~ '[[:cntrl:]]'
    then dibs._refuse_job(ord, 'a group of 1 to 200 printable characters')
  when cost not between 1 and 1000000 then dibs._refuse_job(ord, 'a cost from 1 to 1000000')
  when jsonb_typeof(resources) <> 'object' or resources = '{}'
    then dibs._refuse_job(ord, 'resources that are a JSON object of names and units, and not empty')
  else true
end;

comment on function dibs._check_batch_options is
'Return true, or raise 23514 for the first bad option of a job: one of those that `enqueue` never handles by itself, but
passes on to `_enqueue_batch`. `_check_dedup` checks the other options of a dedup key.';

create or replace function dibs._check_job(
  queue_id integer, queue text, payload_limit integer, kind text, payload jsonb, body bytea, content_type text,
  headers jsonb, priority integer, delay interval, due_at timestamptz, ttl interval, deadline timestamptz,
  max_attempts integer, history text, at timestamptz, queue_priority smallint) returns integer
language plpgsql volatile
as $$
declare
  v_ord constant bigint := 1;
  v_size integer := coalesce(octet_length(body), dibs._json_bytes(payload), 0);
  v_header_size constant integer := coalesce(dibs._json_bytes(headers), 0);
  v_passed boolean;
begin
  -- An expression costs more to prepare than to evaluate, so each check is skipped for a job without its options.
  if v_size > payload_limit then
    v_passed := dibs._check_payload_size(v_ord, v_size, queue, payload_limit);
  end if;
  if num_nonnulls(delay, due_at, deadline) > 0 then
    v_passed := dibs._check_job_time(v_ord, delay, due_at, deadline, at);
  end if;
  if num_nonnulls(content_type, headers, priority, ttl, max_attempts, history) > 0 or not dibs._is_valid_kind(kind)
    or num_nonnulls(payload, body) > 1
  then
    v_passed := dibs._check_job_options(v_ord, kind, payload, body, content_type, headers, v_header_size, priority,
      ttl, max_attempts, history);
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
'Check a job that `enqueue` inserts by itself, as `_insert_batch` checks the jobs of a batch. Note an unusual priority
and a large size for claims. Return the size of payload and headers in bytes, or null if it is small.';
