-- The only clock, and ids whose order is the order of time.

create function dibs.now() returns timestamptz
language sql volatile parallel safe
return clock_timestamp();

create function dibs.micros(at timestamptz) returns bigint
language sql immutable strict parallel safe
return (extract(epoch from at) * 1000000)::bigint;

create function dibs.from_micros(us bigint) returns timestamptz
language sql stable strict parallel safe
return timestamptz 'epoch' + us * interval '1 microsecond';

-- UUIDv7: 48 bits of milliseconds, then 1/4096 ms in the 12 bits below them, then 62 random bits.
-- A tick is 1/4096 ms, so the ids of one batch, a tick apart, sort in its order.
create function dibs.tick(at timestamptz) returns bigint
language sql immutable strict parallel safe
return dibs.micros(at) / 1000 * 4096 + dibs.micros(at) % 1000 * 4096 / 1000;

create function dibs.id_at(tick bigint) returns uuid
language sql volatile parallel safe
return encode(
  substring(int8send(tick >> 12) from 3)
    || substring(int4send(28672 | (tick & 4095)::integer) from 3)
    || substring(uuid_send(gen_random_uuid()) from 9),
  'hex')::uuid;

create function dibs.make_id(at timestamptz default dibs.now()) returns uuid
language sql volatile parallel safe security definer
set search_path = pg_catalog, pg_temp
return dibs.id_at(dibs.tick(at));

create function dibs.id_floor(at timestamptz) returns uuid
language sql immutable strict parallel safe
return (encode(substring(int8send(greatest(dibs.micros(at) / 1000, 0)) from 3), 'hex')
        || '00000000000000000000')::uuid;

create function dibs.id_time(id uuid) returns timestamptz
language sql stable strict parallel safe
return to_timestamp(('x0000' || replace(left(id::text, 13), '-', ''))::bit(64)::bigint / 1000.0::double precision);

comment on function dibs.now is 'The only clock: in production plain clock_timestamp().';
comment on function dibs.micros is 'A time as microseconds since 1970.';
comment on function dibs.from_micros is 'A time from microseconds since 1970.';
comment on function dibs.tick is 'A time in 1/4096 milliseconds since 1970, as ids count it.';
comment on function dibs.id_at is 'A new id (UUIDv7) of that tick.';
comment on function dibs.make_id is 'A new id (UUIDv7) of that time, now by default, to be given to `enqueue`.';
comment on function dibs.id_floor is 'The smallest id of that time: a range of time is a range of ids.';
comment on function dibs.id_time is 'When an id was made.';
