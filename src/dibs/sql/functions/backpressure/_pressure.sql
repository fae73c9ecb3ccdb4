-- How full a queue is: measured, or remembered by the session.

create or replace function dibs._pressure_seal(queue_id integer, body text) returns text
language sql stable
begin atomic
  -- Hash twice, as HMAC does. Read the secret in each call: a constant in a plan is printed by EXPLAIN.
  select encode(sha256(s.secret || sha256(s.secret || convert_to(queue_id || ':' || body, 'UTF8'))), 'hex')
  from dibs.setting as s;
end;

comment on function dibs._pressure_seal is
'Return the seal of a remembered pressure: 64 hexadecimal digits that depend on a secret of the database. The caller can
change what the session remembers, and it decides whether the caller''s jobs are taken.';

create or replace function dibs._lowest_counted_priority(queue dibs.queue) returns smallint
language sql immutable parallel safe
return case
  when (queue).when_full = 'sideline' then (dibs._sidelined_priority() + 1)::smallint
  else dibs._sidelined_priority()
end;

comment on function dibs._lowest_counted_priority is
'Return the lowest priority whose jobs count towards the bounds of a queue. A queue that sidelines jobs does not count
the lowest of all, which the sidelined jobs have.';

create or replace function dibs._count_waiting(queue_ids integer[], lowest_priority smallint, bound bigint)
returns bigint
language plpgsql volatile
as $$
declare
  v_ungrouped bigint;
  v_grouped bigint;
  v_blocked bigint;
begin
  -- Three counts, because each reads another index. Each stops at the bound.
  select count(*) into v_ungrouped from (
    select from dibs.ready as r
    where r.queue_id = any (queue_ids) and r.priority >= lowest_priority and r.group_key is null limit bound) as r;
  select count(*) into v_grouped from (
    select from dibs.ready as r
    where r.queue_id = any (queue_ids) and r.priority >= lowest_priority and r.group_key is not null limit bound) as r;
  select count(*) into v_blocked from (
    select from dibs.blocked as b
    where b.queue_id = any (queue_ids) and b.priority >= lowest_priority limit bound) as b;
  return v_ungrouped + v_grouped + v_blocked;
end
$$;

comment on function dibs._count_waiting is
'Count the jobs that wait in a queue and its shards. The result is exact up to `bound`, and may be up to three times as
large: ungrouped, grouped and blocked jobs are counted up to it each.';

create or replace function dibs._waiting_since(queue_ids integer[], lowest_priority smallint, at timestamptz)
returns timestamptz
language plpgsql volatile
as $$
declare
  v_ungrouped timestamptz;
  v_grouped timestamptz;
  v_blocked timestamptz;
begin
  -- The index gives the oldest job of one queue and priority, so ask it once for each.
  select min(oldest.due_at) into v_ungrouped
  from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
  cross join lateral (
    select r.due_at from dibs.ready as r
    where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
    order by r.due_at, r.id limit 1) as oldest
  where q.id = any (queue_ids) and p.priority >= lowest_priority;
  -- The pointers of a group say since when its jobs wait, or an earlier time. A pointer without a priority, a wakeup,
  -- stands for jobs of any priority, so it counts.
  select min(t.look_at) into v_grouped from dibs.group_pointer as t
  where t.queue_id = any (queue_ids) and t.look_at <= at and (t.priority >= lowest_priority or t.priority is null);
  select min(b.due_at) into v_blocked from dibs.blocked as b
  where b.queue_id = any (queue_ids) and b.priority >= lowest_priority;
  return least(v_ungrouped, v_grouped, v_blocked);
end
$$;

comment on function dibs._waiting_since is
'Return since when the oldest waiting job of a queue and its shards is due (for groups: that time or an earlier one);
null if none waits.';

create or replace function dibs._measure_pressure(queue dibs.queue, at timestamptz, is_first boolean)
returns dibs.pressure
language plpgsql volatile
as $$
declare
  v_began_us constant bigint := dibs._micros(clock_timestamp());
  v_lowest constant smallint := dibs._lowest_counted_priority(queue);
  v_queues constant integer[] := dibs._queue_numbers((queue).id);
  v_ended_us bigint;
  v_too_long_us bigint;
  v_good_for_us bigint;
  v_pressure dibs.pressure;
begin
  -- How full is the queue? Measure only what it has a bound for.
  if (queue).max_depth is not null then
    v_pressure.waiting := dibs._count_waiting(v_queues, v_lowest, (queue).max_depth);
  end if;
  if (queue).max_age is not null then
    -- Infinity is a result: no job waits. Null means that nobody asked.
    v_pressure.oldest_due := coalesce(dibs._waiting_since(v_queues, v_lowest, at), 'infinity');
  end if;
  -- For how long is this good? 4 µs for each waiting job: a nearly empty queue is measured at each enqueue, so a small
  -- bound is kept exactly.
  v_ended_us := dibs._micros(clock_timestamp());
  v_good_for_us := 4 * coalesce(v_pressure.waiting, 0);
  -- Longer after a slow measurement (above 2 ms: a long queue, or many dead rows). The first one of a connection is
  -- slow because it is planned, which does not count.
  if not is_first then
    v_too_long_us := greatest(v_ended_us - v_began_us - 2000, 0);
    v_good_for_us := v_good_for_us + dibs._cooldown(v_too_long_us);
  end if;
  -- A minute at most.
  v_pressure.good_until_us := v_ended_us + least(v_good_for_us, 60000000);
  return v_pressure;
end
$$;

comment on function dibs._measure_pressure is
'Measure how full a queue is: how many jobs wait, and since when the oldest is due, each only if the queue has a bound
for it. Say until when the result is good. `is_first`: this session remembers no earlier result.';

create or replace function dibs._read_pressure(queue dibs.queue, replacements integer, at timestamptz)
returns dibs.pressure
language plpgsql volatile
as $$
declare
  v_now_us constant bigint := dibs._micros(clock_timestamp());
  v_text constant text := dibs._recall('pressure', (queue).id);
  v_seal constant text := left(v_text, 64);  -- A seal has 64 digits.
  v_body constant text := substr(v_text, 65);
  v_is_still_good boolean;
  v_has_both boolean;
  v_pressure dibs.pressure;
begin
  if v_seal = dibs._pressure_seal((queue).id, v_body) then
    v_pressure := v_body::dibs.pressure;
  end if;
  -- A pressure is good for a minute at most. If more is left, the clock was set back since: do not use it.
  v_is_still_good := v_pressure.good_until_us between v_now_us and v_now_us + 60000000;
  -- Does it have a value for each bound? A bound may be newer than the measurement.
  v_has_both := (v_pressure.waiting is not null or (queue).max_depth is null)
    and (v_pressure.oldest_due is not null or (queue).max_age is null);
  if v_is_still_good and v_has_both then
    return v_pressure;
  end if;
  v_pressure := dibs._measure_pressure(queue, at, is_first => v_pressure.good_until_us is null);
  -- The replaced jobs are cancelled by now, and the jobs in their places not inserted yet.
  v_pressure.waiting := v_pressure.waiting + replacements;
  return v_pressure;
end
$$;

comment on function dibs._read_pressure is
'Return how full a queue is: as this session remembers it, otherwise as measured now. `replacements`: how many jobs of
the batch replace others. They count as waiting.';
