-- The floor: where a connection starts scanning a queue. ARCHITECTURE.md, "The floor", says why. `what` is whose floor it
-- is: of a queue ('floor'), of a newest-first queue ('newest'), of the rotation of a queue's groups ('rotation').

create or replace function dibs._fit_floor(floor dibs.floor, priorities smallint[], top_us bigint) returns dibs.floor
language sql stable
begin atomic
  select row(priorities, array_agg(coalesce(f.due_us, 0) order by p.n), array_agg(coalesce(f.id, dibs._nil_id()) order by p.n),
    array_agg(coalesce(f.high_us, 0) order by p.n), (floor).sweep_at, (floor).sweep_took, (floor).near_at, (floor).near_step, 0)::dibs.floor
  from unnest(priorities) with ordinality as p (priority, n)
  left join unnest((floor).priorities, (floor).due_us, (floor).ids, (floor).high_us) as f (priority, due_us, id, high_us)
    on f.priority = p.priority and greatest(f.due_us, f.high_us) <= top_us;
end;

comment on function dibs._fit_floor is
'A floor for these priorities. One that lies ahead of the clock is dropped: the clock was stepped back, and what lies behind it
may be due now.';

create or replace function dibs._found_hint(what text, queue_id integer) returns dibs.floor
language plpgsql stable
as $$
declare
  v_hint dibs.floor_hint;
  v_floor dibs.floor;
begin
  select h.* into v_hint from dibs.floor_hint as h
  where h.what = _found_hint.what and h.queue_id = _found_hint.queue_id order by h.swept_at desc limit 1;
  v_floor := v_hint.floor;
  v_floor.sweep_at := coalesce(dibs._micros(v_hint.swept_at), 0);
  v_floor.sweep_took := coalesce(dibs._micros('epoch'::timestamptz + v_hint.took), 0);
  v_floor.near_at := 0;
  v_floor.near_step := 0;
  v_floor.quick_until := 0;
  return v_floor;
end
$$;

comment on function dibs._found_hint is 'Where a connection starts that remembers nothing: from the newest hint, otherwise from the start.';

create or replace function dibs._read_floor(what text, queue_id integer, told dibs.floor, priorities smallint[], top_us bigint) returns dibs.floor
language sql stable
return case
  when (told).priorities = priorities and top_us >= all ((told).due_us) and top_us >= all ((told).high_us) then told
  else dibs._fit_floor(case when (told).quick_until is null then dibs._found_hint(what, queue_id) else told end, priorities, top_us)
end;

comment on function dibs._read_floor is
'Where this connection starts scanning a queue: what its session told, if that fits; otherwise the newest hint, otherwise from the start.';

create or replace function dibs._may_sweep(what text, queue_id integer, at timestamptz) returns boolean
language plpgsql volatile
as $$
declare
  v_hint record;
begin
  select h.ctid as spot, h.took, h.swept_at + dibs._look_back_cooldown(1) * h.took as paid_at into v_hint from dibs.floor_hint as h
  where h.what = _may_sweep.what and h.queue_id = _may_sweep.queue_id and h.swept_at <= at
  order by h.swept_at desc limit 1;
  if v_hint.spot is null or v_hint.paid_at > at then
    return v_hint.spot is null;
  end if;
  perform from dibs.floor_hint as h where h.ctid = v_hint.spot for update skip locked;
  -- Who holds the lock may be done with its sweep and stay in its transaction. After as long again the others go ahead, each
  -- in its own fortieth of the time, and the first to commit leaves a new hint.
  return found or v_hint.paid_at + dibs._look_back_cooldown(1) * v_hint.took <= at
    and trunc(extract(epoch from at) / extract(epoch from v_hint.took)) % dibs._look_back_cooldown(1) = pg_backend_pid() % dibs._look_back_cooldown(1);
end
$$;

comment on function dibs._may_sweep is
'Whether an expensive sweep is ours to make: one connection at a time makes it, and not before the last one has paid off. Who
sweeps has locked the newest hint, until its transaction ends.';

create or replace function dibs._look_back(what text, queue_id integer, floor dibs.floor, real_us bigint) returns bigint
language sql volatile
-- A time further ahead than we would ever set it was set before the clock stepped back. A sweep is left to chance, because one that
-- ran into a timeout is due again: so every other claim gets through.
return case
  when (real_us >= (floor).sweep_at or (floor).sweep_at - real_us > dibs._look_back_cooldown((floor).sweep_took))
    and ((floor).sweep_took < 2000 or random() < 0.5 and dibs._may_sweep(what, queue_id, dibs._from_micros(real_us)))
    then dibs._unlimited_look_back_us()
  when real_us >= (floor).near_at or (floor).near_at - real_us > 60000000 then 500000 << (floor).near_step
  else 0
end;

comment on function dibs._look_back is
'How far below the floor this claim looks, in microseconds, for what was committed late or put back.';

create or replace function dibs._found_floor(what text, queue_id integer, floor dibs.floor, told dibs.floor) returns dibs.floor
language plpgsql volatile
as $$
declare
  v_shared dibs.floor := dibs._fit_floor(dibs._found_hint(what, queue_id), floor.priorities, dibs._unlimited_look_back_us());
begin
  for n in 1 .. cardinality(floor.priorities) loop
    if (floor.due_us[n], floor.ids[n], floor.high_us[n]) = (told.due_us[n], told.ids[n], told.high_us[n]) then
      floor.due_us[n] := v_shared.due_us[n];
      floor.ids[n] := v_shared.ids[n];
      floor.high_us[n] := v_shared.high_us[n];
    end if;
  end loop;
  return floor;
end
$$;

comment on function dibs._found_floor is
'What a sweep found itself, for others to start from. Where it only kept what its session said, which the caller may have forged,
the hint before it stays.';

create or replace function dibs._looked_back(
  what text, queue_id integer, floor dibs.floor, told dibs.floor, back bigint, took bigint) returns dibs.floor
language plpgsql volatile
as $$
declare
  v_now constant bigint := dibs._micros(clock_timestamp());
begin
  if back < dibs._unlimited_look_back_us() then
    floor.near_at := v_now + least(dibs._look_back_cooldown(took), 30000000);
    floor.near_step := (floor.near_step + 1) % 6;
    return floor;
  end if;
  floor.sweep_took := took;
  floor.sweep_at := v_now + dibs._look_back_cooldown(took);
  if took >= 2000 then
    insert into dibs.floor_hint (what, queue_id, swept_at, took, floor)
    values (what, queue_id, dibs._from_micros(v_now), took * interval '1 microsecond',
      dibs._found_floor(what, queue_id, floor, told));
  end if;
  return floor;
end
$$;

comment on function dibs._looked_back is 'A floor after a look below it, with what that cost.';

create or replace function dibs._write_floor(
  what text, queue_id integer, floor dibs.floor, told dibs.floor, back bigint, took bigint) returns text
language plpgsql volatile
as $$
declare
  v_text constant text := case when back = 0 then floor::text else dibs._looked_back(what, queue_id, floor, told, back, took)::text end;
begin
  return dibs._remember(what, queue_id, v_text);
end
$$;

comment on function dibs._write_floor is
'Remember in the session where the next claim starts, and what looking back cost; returns what it remembers.';

create or replace function dibs._moves(old_us bigint, old_id uuid, first_us bigint, first_id uuid, top_us bigint, is_full boolean) returns boolean
language sql immutable parallel safe
-- No floor rises above what is settled. A look-back lowers it only when it came back full: then there may be more down
-- there, which the next claims walk through.
return first_us >= top_us or is_full or (first_us, first_id) > (old_us, old_id);

comment on function dibs._moves is 'Whether the floor moves after a claim, to the first ticket that it took or to the top, if that is lower.';
