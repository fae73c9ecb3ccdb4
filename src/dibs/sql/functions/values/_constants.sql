-- Values that have a name. Without arguments and immutable, each is folded into the plans that use it.

create or replace function dibs._nil_id() returns uuid
language sql immutable parallel safe
return uuid '00000000-0000-0000-0000-000000000000';

comment on function dibs._nil_id is 'The id before all others.';

create or replace function dibs._settled_us() returns bigint
language sql immutable parallel safe
return 250000;

comment on function dibs._settled_us is
'How old something is, in microseconds, when every transaction in flight that could still come before it has usually committed.';

create or replace function dibs._everything_us() returns bigint
language sql immutable parallel safe
return 4000000000000000;

comment on function dibs._everything_us is 'A look back, in microseconds, that reaches everything there is.';

create or replace function dibs._sidelined_priority() returns smallint
language sql immutable parallel safe
return -100::smallint;

comment on function dibs._sidelined_priority is 'The lowest priority: of jobs that a full queue lets wait behind all others.';

create or replace function dibs._rest(took bigint) returns bigint
language sql immutable parallel safe
return 20 * took;

comment on function dibs._rest is
'How long to leave alone what took that long: twenty times as long, so that it costs at most a twentieth of the time.';
