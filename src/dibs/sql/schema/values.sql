-- The clock, and ids that sort by time.

create function dibs.now() returns timestamptz
language sql volatile parallel safe
return clock_timestamp();

comment on function dibs.now is 'Return the present time for all verbs: clock_timestamp(). Tests replace it.';

create function dibs._micros(at timestamptz) returns bigint
language sql immutable strict parallel safe
-- Convert to a timestamp without time zone: extract from timestamptz is only stable, which would prevent inlining.
return (extract(epoch from at at time zone 'UTC') * 1000000)::bigint;

comment on function dibs._micros is 'Return a time in microseconds since 1970.';

create function dibs._from_micros(us bigint) returns timestamptz
language sql stable strict parallel safe
return timestamptz 'epoch' + us * interval '1 microsecond';

comment on function dibs._from_micros is 'Return the time of a number of microseconds since 1970.';

-- UUIDv7: 48 bits of milliseconds, then 1/4096 ms in the 12 bits below them, then 62 random bits.
-- A tick is 1/4096 ms, so the ids of one batch, a tick apart, sort in its order.
create function dibs._id_tick(at timestamptz) returns bigint
language sql immutable strict parallel safe
-- A double is faster than a numeric, and exact to a tick until 2038; from then on to two ticks.
return floor(date_part('epoch', at at time zone 'UTC') * 4096000)::bigint;

comment on function dibs._id_tick is
'Return a time in ticks since 1970: 1/4096 of a millisecond, the resolution of ids.';

create function dibs._new_id(tick bigint) returns uuid
language sql volatile parallel safe
return encode(
  int8send((tick >> 12 << 16) | 28672 | (tick & 4095)) || substring(uuid_send(gen_random_uuid()) from 9), 'hex')::uuid;

comment on function dibs._new_id is 'Return a new id (UUIDv7) for a tick: its time and 62 random bits.';

create function dibs.make_id(at timestamptz default dibs.now()) returns uuid
language sql volatile parallel safe security definer
set search_path = pg_catalog, pg_temp
return dibs._new_id(dibs._id_tick(at));

comment on function dibs.make_id is
'Return a new id (UUIDv7) for a time, now by default. Pass it to `enqueue` as the id of a job.';

create function dibs._id_floor(at timestamptz) returns uuid
language sql immutable strict parallel safe
return (encode(int8send(greatest(dibs._micros(at) / 1000, 0) << 16), 'hex') || '0000000000000000')::uuid;

comment on function dibs._id_floor is
'Return the smallest id of a time (its millisecond), so that a range of time can be searched as a range of ids.';

create function dibs.id_time(id uuid) returns timestamptz
language sql stable strict parallel safe
return to_timestamp(('x0000' || replace(left(id::text, 13), '-', ''))::bit(64)::bigint / 1000.0::double precision);

comment on function dibs.id_time is 'Return the time of an id.';
