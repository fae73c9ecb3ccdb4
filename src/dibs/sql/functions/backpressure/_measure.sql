-- How full a queue is.

create or replace function dibs._measure_pressure(queue dibs.queue, at timestamptz, first boolean) returns dibs.pressure
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  -- What was sidelined is not counted: else the queue would stay full until that is done, too.
  v_from constant smallint := dibs._sidelined_priority() + ((queue).when_full = 'sideline')::integer;
  v_queues constant integer[] := dibs._queue_numbers((queue).id);
  v_found dibs.pressure;
begin
  -- Counted in an index, and no further than matters.
  if (queue).max_depth is not null then
    v_found.waiting := (
      select count(*) from (
        select from dibs.ready as r where r.queue_id = any (v_queues) and r.priority >= v_from and r.group_key is null
        limit (queue).max_depth) as r) + (
      select count(*) from (
        select from dibs.ready as r where r.queue_id = any (v_queues) and r.priority >= v_from and r.group_key is not null
        limit (queue).max_depth) as r) + (
      select count(*) from (
        select from dibs.blocked as b where b.queue_id = any (v_queues) limit (queue).max_depth) as b);
  end if;
  if (queue).max_age is not null then
    select min(r.due_at) into v_found.oldest_due
    from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
    cross join lateral (
      select r.due_at from dibs.ready as r
      where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
      order by r.due_at, r.id limit 1) as r
    where q.id = any (v_queues) and p.priority >= v_from;
    -- The turn of a group that waits is as old as its oldest job, or older.
    v_found.oldest_due := least(v_found.oldest_due, (
      select min(t.place) from dibs.group_pointer as t where t.queue_id = any (v_queues) and t.place <= at));
  end if;
  -- An expensive measurement pays for itself, as look-backs do, even where a million dead rows lie in the way. A cheap
  -- one is believed for 4 µs per job, so that a small bound is kept at once; and so is the first of a connection, whose
  -- time is that of planning. None for longer than a minute: _read_pressure takes that for a clock that was stepped back.
  v_found.good_until_us := dibs._micros(clock_timestamp()) + least(60000000, 4 * coalesce(v_found.waiting, 0)
    + case when first then 0
        else dibs._cooldown(greatest(dibs._micros(clock_timestamp()) - dibs._micros(v_began) - 2000, 0)) end);
  return v_found;
end
$$;

comment on function dibs._measure_pressure is
'How many jobs of a queue wait, up to its max_depth, and since when its oldest is due; and how long that may be
believed.';

create or replace function dibs._read_pressure(queue dibs.queue, at timestamptz) returns dibs.pressure
language plpgsql volatile
as $$
declare
  v_real bigint := dibs._micros(clock_timestamp());
  v_known dibs.pressure := dibs._recall_pressure((queue).id);
begin
  if v_known.good_until_us between v_real and v_real + 60000000
    and (v_known.waiting is not null or (queue).max_depth is null) then
    return v_known;
  end if;
  return dibs._measure_pressure(queue, at, v_known.good_until_us is null);
end
$$;

comment on function dibs._read_pressure is
'How full a queue is, as this connection knows it; measured again when that is no longer to be believed.';
