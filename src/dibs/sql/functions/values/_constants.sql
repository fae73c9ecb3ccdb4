-- Values that have a name. Without arguments and immutable, each is folded into the plans that use it.

create or replace function dibs._nil_id() returns uuid
language sql immutable parallel safe
return uuid '00000000-0000-0000-0000-000000000000';

comment on function dibs._nil_id is 'The id before all others.';

create or replace function dibs._commit_lag_us() returns bigint
language sql immutable parallel safe
return 250000;

comment on function dibs._commit_lag_us is
'How old something is, in microseconds, when every transaction in flight that could still come before it has usually committed.';

create or replace function dibs._floor_reuse_us() returns bigint
language sql immutable parallel safe
return 20000;

comment on function dibs._floor_reuse_us is
'How long claims of one job may start from a floor that is not raised, in microseconds: what is taken meanwhile is walked past.';

create or replace function dibs._unlimited_look_back_us() returns bigint
language sql immutable parallel safe
return 4000000000000000;

comment on function dibs._unlimited_look_back_us is 'A look back, in microseconds, that reaches everything there is.';

create or replace function dibs._sidelined_priority() returns smallint
language sql immutable parallel safe
return -100::smallint;

comment on function dibs._sidelined_priority is 'The lowest priority: of jobs that a full queue lets wait behind all others.';

create or replace function dibs._cooldown(took bigint) returns bigint
language sql immutable parallel safe
return 20 * took;

comment on function dibs._cooldown is
'How long to leave alone what took that long: twenty times as long, so that it costs at most a twentieth of the time.';

create or replace function dibs._look_back_cooldown(took bigint) returns bigint
language sql immutable parallel safe
return 40 * took;

comment on function dibs._look_back_cooldown is
'How long to leave alone what lies below a floor, after a look there that took that long. There are near looks and sweeps; together they
cost at most a twentieth of the time.';

create or replace function dibs._small_job_bytes() returns integer
language sql immutable parallel safe
return dibs._bound('claim') / 10000;

comment on function dibs._small_job_bytes is
'Up to how many bytes a job''s size is not noted: as many jobs as a claim can take may have that much.';

create or replace function dibs._large_claim_jobs() returns integer
language sql immutable parallel safe
return 1000;

comment on function dibs._large_claim_jobs is 'Above how many jobs each claim counts bytes.';

create or replace function dibs._large_job_bytes() returns integer
language sql immutable parallel safe
return dibs._bound('claim') / dibs._large_claim_jobs();

comment on function dibs._large_job_bytes is
'Above how many bytes a job is large: claims of a queue that has had such a job count bytes.';

create or replace function dibs._max_tickets_moved() returns integer
language sql immutable parallel safe
return 1000;

comment on function dibs._max_tickets_moved is
'How many tickets one claim moves to blocked, or back: a backlog is moved by many claims, none of which takes long.';
