-- Constants. Each is immutable and without arguments, so the planner folds it into the plans that use it.

create or replace function dibs._nil_id() returns uuid
language sql immutable parallel safe
return uuid '00000000-0000-0000-0000-000000000000';

comment on function dibs._nil_id is 'The smallest id.';

create or replace function dibs._commit_lag_us() returns bigint
language sql immutable parallel safe
return 250000;

comment on function dibs._commit_lag_us is
'The age in microseconds (250 ms) of rows before which no more rows are expected: transactions that began earlier have
usually committed. Floors stay this far behind now; look-backs find the exceptions.';

create or replace function dibs._floor_reuse_us() returns bigint
language sql immutable parallel safe
return 20000;

comment on function dibs._floor_reuse_us is
'How long, in microseconds (20 ms), claims of one job may start from the same floor without raising it. They walk past
the dead rows of what was taken meanwhile.';

create or replace function dibs._unlimited_look_back_us() returns bigint
language sql immutable parallel safe
return 4000000000000000;

comment on function dibs._unlimited_look_back_us is 'A look-back in microseconds that reaches all tickets (127 years).';

create or replace function dibs._sidelined_priority() returns smallint
language sql immutable parallel safe
return -100::smallint;

comment on function dibs._sidelined_priority is
'The lowest priority. A full queue may give it to new jobs, so that they wait behind all others.';

create or replace function dibs._cooldown(took bigint) returns bigint
language sql immutable parallel safe
return 20 * took;

comment on function dibs._cooldown is
'How long to wait before repeating a measurement that took so long: 20 times as long, so that it takes at most a
twentieth of the time.';

create or replace function dibs._look_back_cooldown(took bigint) returns bigint
language sql immutable parallel safe
return 40 * took;

comment on function dibs._look_back_cooldown is
'How long to wait before repeating a look below a floor that took so long: 40 times as long. There are two kinds, near
looks and sweeps; together they take at most a twentieth of the time.';

create or replace function dibs._small_job_bytes() returns integer
language sql immutable parallel safe
return dibs._bound('claim') / 10000;

comment on function dibs._small_job_bytes is
'Up to this size in bytes (6,400), the size of a job is not stored. Even 10,000 such jobs fit into the bytes of a
claim.';

create or replace function dibs._large_claim_jobs() returns integer
language sql immutable parallel safe
return 1000;

comment on function dibs._large_claim_jobs is 'Claims of more jobs than this (1,000) always add up the sizes of jobs.';

create or replace function dibs._large_job_bytes() returns integer
language sql immutable parallel safe
return dibs._bound('claim') / dibs._large_claim_jobs();

comment on function dibs._large_job_bytes is
'A job above this size in bytes (64,000) is large. Claims of a queue that has had a large job always add up sizes.';

create or replace function dibs._max_tickets_moved() returns integer
language sql immutable parallel safe
return 1000;

comment on function dibs._max_tickets_moved is
'How many tickets one claim moves to blocked or back at most. Many claims share the work of moving a backlog.';
