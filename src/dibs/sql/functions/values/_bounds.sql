-- Constants and bounds, and checks against bounds. The planner folds constants into the plans that use them.

create or replace function dibs._constant(name text) returns bigint
language sql immutable parallel safe
return case name
  -- The age of rows before which no more rows are expected: transactions that began earlier have usually committed.
  -- Floors stay this far behind now; look-backs find the exceptions.
  when 'commit_lag_us' then 250000
  -- For so long claims of one job may start from the same floor without raising it. They walk past the dead rows of the
  -- tickets taken meanwhile.
  when 'floor_reuse_us' then 20000
  -- A look-back that reaches all tickets: 127 years.
  when 'unlimited_look_back_us' then 4000000000000000
  -- After a look below a floor, wait so many times its duration before the next. There are two kinds, near look-backs
  -- and sweeps; in one queue they take at most a twentieth of the time together.
  when 'look_back_cooldown' then 40
  -- The longest cooldown of near look-backs.
  when 'near_cooldown_us' then 30000000
  -- A claim of more jobs than this always adds up their sizes.
  when 'large_claim_jobs' then 1000
  -- A job above this is large. Claims of a queue that has had one always add up sizes. Other claims need not: 1000 jobs
  -- of this size (large_claim_jobs) fit into the bytes of a claim.
  when 'large_job_bytes' then 64000
  -- The size of a job up to this is not stored. The 10,000 jobs of the largest claim fit into its bytes at this size.
  when 'small_job_bytes' then 6400
  -- One claim moves at most so many tickets to blocked, or back. Many claims share the work of moving a backlog.
  when 'max_tickets_moved' then 1000
  -- So many of the last numbers of a sequence may be in rows that are not committed yet. Hints stop short of them.
  when 'uncommitted_numbers' then 200
  -- Bounds: the most that a caller may give of something, in bytes of JSON (as text), characters, or a number of items.
  -- docs/reference/bounds.md has the same list; a test compares them.
  when 'payload_bound' then 256000000
  when 'headers_bound' then 65536
  when 'claim_bound' then 64000000
  when 'result_bound' then 16000000
  when 'progress_bound' then 16384
  when 'facts_bound' then 16384
  when 'task_bound' then 65536
  when 'schedule_bound' then 250000
  when 'delivery_bound' then 65536
  when 'error_bound' then 65536
  when 'name_bound' then 200
  when 'key_bound' then 2000
  when 'resources_bound' then 100
  when 'batch_bound' then 100000
  when 'names_bound' then 10000
  when 'queues_bound' then 100000
  else ('unknown constant: ' || name)::bigint  -- This raises an error.
end;

comment on function dibs._constant is
'Return a number that several functions share: microseconds, bytes, jobs, tickets, rows or a factor, or the bound of an
argument. Raise an error for an unknown name.';

create or replace function dibs._nil_id() returns uuid
language sql immutable parallel safe
return uuid '00000000-0000-0000-0000-000000000000';

comment on function dibs._nil_id is 'Return the smallest id.';

create or replace function dibs._sidelined_priority() returns smallint
language sql immutable parallel safe
return -100::smallint;

comment on function dibs._sidelined_priority is
'Return the lowest priority that a job may have. A full queue may give it to new jobs, so that they wait behind all
others.';

create or replace function dibs._cooldown(took bigint) returns bigint
language sql immutable parallel safe
return 20 * took;

comment on function dibs._cooldown is
'Return how long to wait before repeating a measurement that took so long: 20 times as long, so that it takes at most a
twentieth of the time.';

create or replace function dibs._may_exceed(value jsonb, most bigint) returns boolean
language sql stable parallel safe
-- 16 bytes of jsonb can be a number of 147,456 digits, so the text may be almost 10,000 times as long.
return pg_column_size(value) > most / 10000;

comment on function dibs._may_exceed is
'True unless the text of this JSON is certainly no longer than `most` bytes. Cheap: it looks only at the binary size.';

create or replace function dibs._json_bytes_or_huge(value jsonb) returns integer
language plpgsql immutable
as $$
begin
  return octet_length(value::text);
exception when program_limit_exceeded then
  return 2000000000;
end
$$;

comment on function dibs._json_bytes_or_huge is
'Return the bytes of JSON as text, or 2,000,000,000 if PostgreSQL cannot write so long a text. _json_bytes calls it only
for JSON that may be so long, because the EXCEPTION block is slow. Not parallel safe: PostgreSQL 16 refuses the block
in a parallel query.';

create or replace function dibs._json_bytes(value jsonb) returns integer
language sql stable
return case
  when dibs._may_exceed(value, 1000000000) then dibs._json_bytes_or_huge(value)
  else octet_length(value::text) end;

comment on function dibs._json_bytes is
'Return the bytes of JSON as text, the form in which clients get it. 2,000,000,000 if it is too long to write.';

create or replace function dibs._check_json(what text, given jsonb, bound text) returns void
language plpgsql stable
as $$
declare
  v_most constant bigint := dibs._constant(bound || '_bound');
begin
  if dibs._may_exceed(given, v_most) and dibs._json_bytes(given) > v_most then
    raise exception using errcode = 'DI012',
      message = format('%s has %s bytes as JSON, and at most %s are taken', what, dibs._json_bytes(given), v_most),
      hint = 'store it elsewhere and send its address';
  end if;
end
$$;

comment on function dibs._check_json is
'Refuse JSON whose text is longer than a bound (a name of _constant, without `_bound`). `what` names it in the
message.';

create or replace function dibs._check_name(what text, name text, most bigint default dibs._constant('name_bound'))
returns void
language plpgsql immutable
as $$
begin
  if name is null or length(name) not between 1 and most or name ~ '[[:cntrl:]]' then
    raise exception using errcode = 'DI010',
      message = format('%s has 1 to %s printable characters, not %s', what, most,
        coalesce(quote_literal(left(name, 80)), 'null'));
  end if;
end
$$;

comment on function dibs._check_name is
'Refuse a name that is null, empty or too long, or has control characters. `what` names it in the message.';

create or replace function dibs._check_items(verb text, items anyarray, bound text) returns anyarray
language plpgsql immutable
as $$
declare
  v_most constant bigint := dibs._constant(bound || '_bound');
begin
  if array_ndims(items) > 1 then
    raise exception using errcode = 'DI010', message = format('%s takes arrays of one dimension', verb);
  end if;
  if cardinality(items) > v_most then
    raise exception using errcode = 'DI010',
      message = format('%s takes at most %s at once, not %s', verb, v_most, cardinality(items)),
      hint = 'split it into several calls';
  end if;
  return items;
end
$$;

comment on function dibs._check_items is
'Return an array, or refuse it if it has more items than a bound (a name of _constant, without `_bound`), or more than
one dimension.';
