-- Constants. The planner folds them into the plans that use them.

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
  -- and sweeps; together they take at most a twentieth of the time.
  when 'look_back_cooldown' then 40
  -- A claim of more jobs than this always adds up their sizes.
  when 'large_claim_jobs' then 1000
  -- A larger job is large. Claims of a queue that has had a large job always add up sizes: so many jobs of any other
  -- queue fit into the bytes of a claim.
  when 'large_job_bytes' then dibs._bound('claim') / 1000
  -- The size of a job up to this is not stored. As many of them as the largest claim takes fit into its bytes.
  when 'small_job_bytes' then dibs._bound('claim') / 10000
  -- One claim moves at most so many tickets to blocked, or back. Many claims share the work of moving a backlog.
  when 'max_tickets_moved' then 1000
  -- So many of the last numbers of a sequence may be in rows that are not committed yet. Hints stop short of them.
  when 'uncommitted_numbers' then 200
end;

comment on function dibs._constant is
'Return a number that several functions share: microseconds, bytes, jobs, tickets, rows or a factor. Null for an unknown
name.';

create or replace function dibs._nil_id() returns uuid
language sql immutable parallel safe
return uuid '00000000-0000-0000-0000-000000000000';

comment on function dibs._nil_id is 'Return the smallest id.';

create or replace function dibs._sidelined_priority() returns smallint
language sql immutable parallel safe
return -100::smallint;

comment on function dibs._sidelined_priority is
'Return the lowest priority. A full queue may give it to new jobs, so that they wait behind all others.';

create or replace function dibs._cooldown(took bigint) returns bigint
language sql immutable parallel safe
return 20 * took;

comment on function dibs._cooldown is
'Return how long to wait before repeating a measurement that took so long: 20 times as long, so that it takes at most a
twentieth of the time.';

