-- The floor: where a connection starts scanning a queue.

-- The setting is the caller's to change, so it carries a checksum and is not believed without it. The floor of a queue's
-- rotation of groups is kept under the queue's number below zero.
create or replace function dibs._read_floor(queue_id integer, top_us bigint) returns dibs.floor
language plpgsql volatile
as $$
declare
  v_text text := current_setting(replace('dibs.floor_' || queue_id, '-', 't'), true);
  v_body text := substr(v_text, position(':' in v_text) + 1);
  v_floor dibs.floor;
begin
  if v_text = dibs._sealed(v_body) then
    v_floor := v_body::dibs.floor;
  end if;
  if cardinality(v_floor.due_us) is distinct from 11 or cardinality(v_floor.ids) is distinct from 11 then
    select h.due_us, h.ids, dibs._micros(h.swept_at), dibs._micros('epoch'::timestamptz + h.took), 0, 0
    into v_floor
    from dibs.floor_hint as h where h.queue_id = _read_floor.queue_id
    order by h.swept_at desc limit 1;
    if not found then
      v_floor := row(array_fill(0::bigint, array[11]),
        array_fill(uuid '00000000-0000-0000-0000-000000000000', array[11]), 0, 0, 0, 0);
    end if;
  end if;
  -- The clock was stepped back: what lies behind such a floor may be due now.
  if top_us < any (v_floor.due_us) then
    select array_agg(case when d > top_us then 0 else d end order by n) into v_floor.due_us
    from unnest(v_floor.due_us) with ordinality as f (d, n);
  end if;
  return v_floor;
end
$$;

comment on function dibs._read_floor is
'Where this connection starts scanning a queue: from its session, else from the newest hint, else from the start.';

create or replace function dibs._look_back(queue_id integer, floor dibs.floor, real_us bigint)
returns bigint
language plpgsql volatile
as $$
declare
  v_all constant bigint := 4000000000000000;
  v_paid timestamptz;
begin
  -- A time further ahead than we would ever set it was set before the clock stepped back.
  if real_us >= floor.sweep_at or floor.sweep_at - real_us > 20 * floor.sweep_took then
    if floor.sweep_took < 2000 then
      return v_all;
    end if;
    -- Expensive sweeps are shared by all connections: one at a time, and not before the last has paid off. The lock
    -- is the session's, because the caller's transaction may last; write_floor gives it back.
    select h.swept_at + 20 * h.took into v_paid from dibs.floor_hint as h
    where h.queue_id = _look_back.queue_id and h.swept_at <= dibs._from_micros(real_us)
    order by h.swept_at desc limit 1;
    if coalesce(v_paid, '-infinity') <= dibs._from_micros(real_us) and pg_try_advisory_lock(20001, queue_id) then
      return v_all;
    end if;
  end if;
  if real_us >= floor.near_at or floor.near_at - real_us > 60000000 then
    return 500000 << floor.near_step;
  end if;
  return 0;
end
$$;

comment on function dibs._look_back is
'How far below the floor this claim looks, in microseconds, for what was committed late or put back.';

create or replace function dibs._write_floor(
  queue_id integer, floor dibs.floor, due_us bigint[], ids uuid[], seen boolean[], top_us bigint,
  back bigint, began_us bigint, queues integer)
returns void
language plpgsql volatile
as $$
declare
  v_end bigint := dibs._micros(clock_timestamp());
  v_took bigint := (v_end - began_us) / queues;
  v_unlocked boolean;
begin
  for n in 1 .. 11 loop
    if not seen[n] then
      due_us[n] := top_us;
      ids[n] := '00000000-0000-0000-0000-000000000000';
    end if;
  end loop;
  if back >= 4000000000000000 then
    if floor.sweep_took >= 2000 then
      v_unlocked := pg_advisory_unlock(20001, queue_id);
    end if;
    if v_took >= 2000 then
      insert into dibs.floor_hint (queue_id, swept_at, took, due_us, ids)
      values (queue_id, dibs._from_micros(v_end), v_took * interval '1 microsecond', due_us, ids);
    end if;
    floor.sweep_took := v_took;
    floor.sweep_at := v_end + 20 * v_took;
  elsif back > 0 then
    floor.near_at := v_end + least(20 * v_took, 30000000);
    floor.near_step := (floor.near_step + 1) % 6;
  end if;
  floor.due_us := due_us;
  floor.ids := ids;
  perform set_config(replace('dibs.floor_' || queue_id, '-', 't'), dibs._sealed(floor::text), false);
end
$$;

comment on function dibs._write_floor is
'Remember in the session where the next claim of this queue starts, and what looking back cost.';
