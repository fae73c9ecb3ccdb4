-- What may be said of a job, checked before it is inserted: a row that breaks a constraint is printed into the server's log,
-- payload and all.

create or replace function dibs._refuse_job(ord bigint, expected text) returns boolean
language plpgsql volatile
as $$
begin
  raise exception using errcode = '23514', message = format('job %s is refused: expected %s', ord, expected);
end
$$;

comment on function dibs._refuse_job is 'Refuse the job at that place of its batch, and say what is expected.';

create or replace function dibs._refuse_payload(ord bigint, size integer, queue text, payload_limit integer) returns boolean
language plpgsql volatile
as $$
begin
  raise exception using errcode = 'DI012',
    message = format('the payload of job %s has %s bytes; queue %L takes at most %s', ord, size, queue, payload_limit),
    hint = 'store it elsewhere and send its address, or raise the queue''s payload_limit';
end
$$;

comment on function dibs._refuse_payload is 'Raise DI012.';

create or replace function dibs._refuse_due(ord bigint, delay interval, due_at timestamptz) returns boolean
language plpgsql volatile
as $$
begin
  raise exception using errcode = 'DI010',
    message = format('job %s cannot be due then: delay %s, due_at %s', ord,
                     coalesce(delay::text, 'none'), coalesce(due_at::text, 'none')),
    hint = 'give either a delay from 0 to 10 years, or a due_at at most 10 years ahead';
end
$$;

comment on function dibs._refuse_due is 'Refuse a job that is due at no time that makes sense.';

create or replace function dibs._refuse_deadline(ord bigint, deadline timestamptz) returns boolean
language plpgsql volatile
as $$
begin
  raise exception using errcode = 'DI010',
    message = format('job %s has the deadline %s, which is too far away', ord, deadline),
    hint = 'give a deadline from the year 1 to the year 9000, or none';
end
$$;

comment on function dibs._refuse_deadline is 'Refuse a deadline that no client can read.';

create or replace function dibs._refuse_id(ord bigint, id uuid) returns boolean
language plpgsql volatile
as $$
begin
  raise exception using errcode = 'DI013',
    message = format('job %s has the id %s, whose time %s is more than an hour ahead or older than retention', ord, id,
                     dibs.id_time(id)),
    hint = 'ids are UUIDv7 by the database''s clock: make them with dibs.make_id(), or give none';
end
$$;

comment on function dibs._refuse_id is 'Raise DI013.';

-- These are written into the statement that inserts a batch, and cost what a constraint would.
create or replace function dibs._check_job_time(
  ord bigint, delay interval, due_at timestamptz, deadline timestamptz, at timestamptz) returns boolean
language sql volatile
return case
  when delay not between interval '0' and interval '10 years' or due_at > at + interval '10 years'
    or num_nonnulls(delay, due_at) = 2 then dibs._refuse_due(ord, delay, due_at)
  when deadline not between timestamptz '0001-01-02' and timestamptz '9000-01-01' then dibs._refuse_deadline(ord, deadline)
  else true
end;

comment on function dibs._check_job_time is 'True, or an error about when a job is due or has its deadline.';

create or replace function dibs._check_job_id(ord bigint, id uuid, ahead uuid, today uuid, retention interval, at timestamptz)
returns boolean
language sql volatile
return case
  when id >= ahead or case when id < today then id < dibs._id_floor(at - retention) end then dibs._refuse_id(ord, id)
  else true
end;

comment on function dibs._check_job_id is 'True, or an error about an id from the future or from before retention.';

create or replace function dibs._is_valid_kind(kind text) returns boolean
language sql immutable parallel safe
return coalesce(kind <> '' and length(kind) <= dibs._bound('name') and kind not like E'%\n%', false);

comment on function dibs._is_valid_kind is 'Whether a kind has 1 to 200 characters on one line.';

create or replace function dibs._check_job_options(
  ord bigint, kind text, priority integer, ttl interval, lease interval, lease_growth double precision, lease_cap interval,
  max_attempts integer, history text, dedup_scope text, "group" text, cost integer, resources jsonb, payload jsonb,
  body bytea, content_type text, headers jsonb, header_size integer, dedup_key text, shard_key text)
returns boolean
language sql volatile
return case
  when not dibs._is_valid_kind(kind) then dibs._refuse_job(ord, 'a kind of 1 to 200 characters on one line')
  when priority not between -100 and 100 then dibs._refuse_job(ord, 'a priority from -100 to 100')
  when payload is not null and body is not null then dibs._refuse_job(ord, 'either a JSON payload or bytes, not both')
  when length(content_type) not between 1 and dibs._bound('name') or content_type ~ '[[:cntrl:]]'
    then dibs._refuse_job(ord, 'a content type of 1 to 200 printable characters')
  when jsonb_typeof(headers) <> 'object' or header_size > dibs._bound('headers')
    then dibs._refuse_job(ord, 'headers that are a JSON object of at most 65536 bytes')
  when ttl <= interval '0' or ttl > interval '10 years' then dibs._refuse_job(ord, 'a TTL above 0 and up to 10 years, or none')
  when lease not between interval '100 milliseconds' and interval '7 days'
    then dibs._refuse_job(ord, 'a lease from 0.1 s to 7 days')
  when lease_growth not between 1 and 100 then dibs._refuse_job(ord, 'a lease growth from 1 to 100')
  when lease_cap not between interval '100 milliseconds' and interval '7 days'
    then dibs._refuse_job(ord, 'a lease cap from 0.1 s to 7 days')
  when max_attempts not between 1 and 10000 then dibs._refuse_job(ord, '1 to 10000 attempts')
  when history not in ('all', 'failures', 'none') then dibs._refuse_job(ord, 'a history of all, failures or none')
  when dedup_scope not in ('waiting', 'unfinished', 'window')
    then dibs._refuse_job(ord, 'a dedup_scope of waiting, unfinished or window')
  when length("group") not between 1 and dibs._bound('name') or "group" ~ '[[:cntrl:]]'
    then dibs._refuse_job(ord, 'a group of 1 to 200 printable characters')
  when cost not between 1 and 1000000 then dibs._refuse_job(ord, 'a cost from 1 to 1000000')
  when jsonb_typeof(resources) <> 'object' or resources = '{}'
    then dibs._refuse_job(ord, 'resources that are a JSON object of names and units, and not empty')
  when length(dedup_key) > dibs._bound('key') or length(shard_key) > dibs._bound('key')
    then dibs._refuse_job(ord, 'a key of at most 2000 characters')
  else true
end;

comment on function dibs._check_job_options is 'True, or an error that says in words what is wrong with a job.';
