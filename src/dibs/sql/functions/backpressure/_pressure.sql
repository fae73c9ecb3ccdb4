-- How full a queue is: measured, or remembered by the session.

create or replace function dibs._pressure_seal(queue_id integer, body text) returns text
language sql stable
begin atomic
  -- Hash twice, as HMAC does. Read the secret at each call: as a constant of a plan, anyone could have it printed.
  select encode(sha256(s.secret || sha256(s.secret || convert_to(queue_id || ':' || body, 'UTF8'))), 'hex')
  from dibs.setting as s;
end;

comment on function dibs._pressure_seal is
'Return the seal of a remembered pressure: 64 hexadecimal digits that depend on a secret of the database. The caller can
change what the session remembers, and it decides whether the caller''s jobs are taken.';

create or replace function dibs._measure_pressure(queue dibs.queue, at timestamptz, is_first boolean)
returns dibs.pressure
language plpgsql volatile
as $$
declare
  v_began_us constant bigint := dibs._micros(clock_timestamp());
  v_ended_us bigint;
  v_good_for_us bigint;
  -- The lowest priority that counts: sidelined jobs do not.
  v_counted_from constant smallint := dibs._sidelined_priority() + ((queue).when_full = 'sideline')::integer;
  v_queues constant integer[] := dibs._queue_numbers((queue).id);
  v_pressure dibs.pressure;
begin
  -- Each count reads an index, and stops at the bound. Only the age of blocked jobs takes all of them.
  if (queue).max_depth is not null then
    v_pressure.waiting := (
      select count(*) from (
        select from dibs.ready as r
        where r.queue_id = any (v_queues) and r.priority >= v_counted_from and r.group_key is null
        limit (queue).max_depth) as r) + (
      select count(*) from (
        select from dibs.ready as r
        where r.queue_id = any (v_queues) and r.priority >= v_counted_from and r.group_key is not null
        limit (queue).max_depth) as r) + (
      select count(*) from (
        select from dibs.blocked as b
        where b.queue_id = any (v_queues) and b.priority >= v_counted_from limit (queue).max_depth) as b);
  end if;
  if (queue).max_age is not null then
    select min(r.due_at) into v_pressure.oldest_due
    from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
    cross join lateral (
      select r.due_at from dibs.ready as r
      where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
      order by r.due_at, r.id limit 1) as r
    where q.id = any (v_queues) and p.priority >= v_counted_from;
    -- The pointer of a waiting group is at the due time of its oldest job, or before; without a priority, it may stand
    -- for any.
    v_pressure.oldest_due := least(v_pressure.oldest_due, (
      select min(t.look_at) from dibs.group_pointer as t
      where t.queue_id = any (v_queues) and t.look_at <= at and coalesce(t.priority >= v_counted_from, true)), (
      select min(b.due_at) from dibs.blocked as b where b.queue_id = any (v_queues) and b.priority >= v_counted_from),
      'infinity');
  end if;
  -- The result is good for 4 µs per waiting job: a nearly empty queue is measured each time, so a small bound is kept
  -- exactly.
  v_ended_us := dibs._micros(clock_timestamp());
  v_good_for_us := 4 * coalesce(v_pressure.waiting, 0);
  -- If measuring took more than 2 ms, it must pay for itself, even among a million dead rows. The first time of a
  -- connection is mostly planning and does not count.
  if not is_first then
    v_good_for_us := v_good_for_us + dibs._cooldown(greatest(v_ended_us - v_began_us - 2000, 0));
  end if;
  v_pressure.good_until_us := v_ended_us + least(v_good_for_us, 60000000);
  return v_pressure;
end
$$;

comment on function dibs._measure_pressure is
'Count how many jobs of a queue wait (ungrouped, grouped and blocked ones, each up to its max_depth), and find since
when the oldest is due: each only if the queue has a bound for it. Say until when the result is good. `is_first`: this
connection has not measured the queue before.';

create or replace function dibs._read_pressure(queue dibs.queue, at timestamptz) returns dibs.pressure
language plpgsql volatile
as $$
declare
  v_now_us bigint := dibs._micros(clock_timestamp());
  v_text text := dibs._recall('pressure', (queue).id);
  v_seal text := left(v_text, 64);  -- A seal has 64 digits.
  v_body text := substr(v_text, 65);
  v_remembered dibs.pressure;
begin
  if v_seal = dibs._pressure_seal((queue).id, v_body) then
    v_remembered := v_body::dibs.pressure;
  end if;
  -- No pressure is good for more than a minute: one that seems to be was measured before the clock was set back.
  if v_remembered.good_until_us between v_now_us and v_now_us + 60000000
    -- A bound may be new since the queue was measured.
    and (v_remembered.waiting is not null or (queue).max_depth is null)
    and (v_remembered.oldest_due is not null or (queue).max_age is null) then
    return v_remembered;
  end if;
  return dibs._measure_pressure(queue, at, is_first => v_remembered.good_until_us is null);
end
$$;

comment on function dibs._read_pressure is
'Return how full a queue is: as this session remembers it, or measured if that is too old or its seal is wrong.';
