-- The only clock, and ids whose order is the order of time.

create function dibs.now() returns timestamptz
language sql volatile parallel safe
return clock_timestamp();

comment on function dibs.now is 'The only clock: in production plain clock_timestamp().';

create function dibs._micros(at timestamptz) returns bigint
language sql immutable strict parallel safe
-- Of a time without a zone, which is immutable: otherwise it could not become a part of the expressions that use it.
return (extract(epoch from at at time zone 'UTC') * 1000000)::bigint;

comment on function dibs._micros is 'A time as microseconds since 1970.';

create function dibs._from_micros(us bigint) returns timestamptz
language sql stable strict parallel safe
return timestamptz 'epoch' + us * interval '1 microsecond';

comment on function dibs._from_micros is 'A time from microseconds since 1970.';

-- UUIDv7: 48 bits of milliseconds, then 1/4096 ms in the 12 bits below them, then 62 random bits.
-- A tick is 1/4096 ms, so the ids of one batch, a tick apart, sort in its order.
create function dibs._id_tick(at timestamptz) returns bigint
language sql immutable strict parallel safe
-- As a double: that is quicker than a numeric, and right to a tick for hundreds of years.
return floor(date_part('epoch', at at time zone 'UTC') * 4096000)::bigint;

comment on function dibs._id_tick is 'A time in 1/4096 milliseconds since 1970, as ids count it.';

create function dibs._new_id(tick bigint) returns uuid
language sql volatile parallel safe
return encode(
  int8send((tick >> 12 << 16) | 28672 | (tick & 4095)) || substring(uuid_send(gen_random_uuid()) from 9), 'hex')::uuid;

comment on function dibs._new_id is 'A new id (UUIDv7) of that tick.';

create function dibs.make_id(at timestamptz default dibs.now()) returns uuid
language sql volatile parallel safe security definer
set search_path = pg_catalog, pg_temp
return dibs._new_id(dibs._id_tick(at));

comment on function dibs.make_id is 'A new id (UUIDv7) of that time, now by default, to be given to `enqueue`.';

create function dibs._id_floor(at timestamptz) returns uuid
language sql immutable strict parallel safe
return (encode(int8send(greatest(dibs._micros(at) / 1000, 0) << 16), 'hex') || '0000000000000000')::uuid;

comment on function dibs._id_floor is 'The smallest id of that time: a range of time is a range of ids.';

create function dibs.id_time(id uuid) returns timestamptz
language sql stable strict parallel safe
return to_timestamp(('x0000' || replace(left(id::text, 13), '-', ''))::bit(64)::bigint / 1000.0::double precision);

comment on function dibs.id_time is 'When an id was made.';
