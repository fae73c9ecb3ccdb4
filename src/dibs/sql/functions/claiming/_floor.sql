-- The floor: the place from which a connection scans a queue. README.md has its rules.
-- `what` names the scan: 'floor' (tickets, the earliest due first), 'newest' (tickets of a queue served newest first;
-- each floor is a hole), or 'rotation' (pointers to groups).

create or replace function dibs._priorities(queue dibs.queue) returns smallint[]
language plpgsql stable
as $$
begin
  if not exists (select from dibs.queue_priority as p where p.queue_id = queue.id) then
    return array[queue.priority];
  end if;
  return array(
    select queue.priority
    union
    select p.priority from dibs.queue_priority as p where p.queue_id = queue.id order by 1 desc);
end
$$;

comment on function dibs._priorities is
'Return the priorities that jobs of a queue have or have had, the highest first.';

create or replace function dibs._note_priorities(queue_ids integer[], priorities smallint[]) returns void
language plpgsql volatile
as $$
begin
  insert into dibs.queue_priority (queue_id, priority)
  select distinct n.queue_id, n.priority from unnest(queue_ids, priorities) as n (queue_id, priority)
  where not exists (
    select from dibs.queue_priority as p where p.queue_id = n.queue_id and p.priority = n.priority);
end
$$;

comment on function dibs._note_priorities is
'Note priorities that a queue has not had before. The transaction that inserts the jobs calls it, so a claim that sees
the jobs also sees their priority.';

create or replace function dibs._fit_floor(
  what text, queue_id integer, remembered dibs.floor, priorities smallint[], top_us bigint) returns dibs.floor
language plpgsql stable
as $$
declare
  v_hint dibs.floor_hint;
  v_floor dibs.floor := remembered;
begin
  if remembered.reuse_until is null then
    select h.* into v_hint from dibs.floor_hint as h
    where h.what = _fit_floor.what and h.queue_id = _fit_floor.queue_id order by h.swept_at desc limit 1;
    v_floor := v_hint.floor;
    v_floor.sweep_at := coalesce(dibs._micros(v_hint.swept_at), 0);
    v_floor.sweep_took := coalesce(dibs._micros('epoch'::timestamptz + v_hint.took), 0);
    v_floor.near_at := 0;
    v_floor.near_step := 0;
  end if;
  select array_agg(coalesce(f.due_us, 0) order by p.n), array_agg(coalesce(f.id, dibs._nil_id()) order by p.n),
    array_agg(coalesce(f.high_us, 0) order by p.n)
  into v_floor.due_us, v_floor.ids, v_floor.high_us
  from unnest(priorities) with ordinality as p (priority, n)
  left join unnest(v_floor.priorities, v_floor.due_us, v_floor.ids, v_floor.high_us)
    as f (priority, due_us, id, high_us)
    on f.priority = p.priority and greatest(f.due_us, f.high_us) <= top_us;
  v_floor.priorities := priorities;
  v_floor.reuse_until := 0;
  return v_floor;
end
$$;

comment on function dibs._fit_floor is
'Arrange a floor for these priorities: the remembered one, or the newest hint if it is null. A priority that it lacks
starts at the beginning of time. So does one whose floor lies above `top_us`: the clock was set back, and tickets below
that floor may be due now.';

create or replace function dibs._read_floor(
  what text, queue_id integer, remembered dibs.floor, priorities smallint[], top_us bigint) returns dibs.floor
language sql stable
return case
  when (remembered).priorities = priorities and top_us >= all ((remembered).due_us)
    and top_us >= all ((remembered).high_us) then remembered
  else dibs._fit_floor(what, queue_id, remembered, priorities, top_us)
end;

comment on function dibs._read_floor is
'Return the floor from which a claim scans these priorities: the one that its session remembers, otherwise the newest
hint, otherwise the beginning of time. No part of it is above `top_us`. The planner inlines it.';

create or replace function dibs._may_sweep(what text, queue_id integer, at timestamptz) returns boolean
language plpgsql volatile
as $$
declare
  v_cooldown constant bigint := dibs._constant('look_back_cooldown');
  v_hint record;
begin
  select h.ctid as row_id, h.took, h.swept_at + v_cooldown * h.took as ends_at into v_hint from dibs.floor_hint as h
  where h.what = _may_sweep.what and h.queue_id = _may_sweep.queue_id and h.swept_at <= at
  order by h.swept_at desc limit 1;
  if v_hint.row_id is null or v_hint.ends_at > at then
    return v_hint.row_id is null;
  end if;
  perform from dibs.floor_hint as h where h.ctid = v_hint.row_id for update skip locked;
  -- The lock holder may have finished sweeping but left its transaction open. After another cooldown the other
  -- connections sweep anyway, spread over time by backend PID. The first to commit writes a new hint.
  return found or v_hint.ends_at + v_cooldown * v_hint.took <= at
    and trunc(extract(epoch from at) / extract(epoch from v_hint.took)) % v_cooldown = pg_backend_pid() % v_cooldown;
end
$$;

comment on function dibs._may_sweep is
'True if this connection may sweep a queue where sweeps are expensive: after the cooldown of the last sweep, and one
connection at a time. Locks the newest hint until the transaction ends.';

create or replace function dibs._look_back(what text, queue_id integer, floor dibs.floor, real_us bigint) returns bigint
language sql volatile
-- Ignore a time later than any we would set: the clock was set back. Sweep only half of the times that an expensive
-- sweep is due: one that hits the statement timeout is due again at once, and otherwise no claim would succeed.
return case
  when (real_us >= (floor).sweep_at
      or (floor).sweep_at - real_us > dibs._constant('look_back_cooldown') * (floor).sweep_took)
    and ((floor).sweep_took < 2000 or random() < 0.5 and dibs._may_sweep(what, queue_id, dibs._from_micros(real_us)))
    then dibs._constant('unlimited_look_back_us')
  when real_us >= (floor).near_at or (floor).near_at - real_us > 60000000 then 500000 << (floor).near_step
  else 0
end;

comment on function dibs._look_back is
'Return how many microseconds below its floor a claim starts: usually 0; now and then 0.5 to 16 s (a near look-back) or
everything (a sweep). `real_us` is the time of the real clock.';

create or replace function dibs._moved_floor(
  floor dibs.floor_place, first dibs.floor_place, top_us bigint, is_full boolean)
returns dibs.floor_place
language sql immutable parallel safe
return case
  when (first).due_us >= top_us then row(top_us, dibs._nil_id())::dibs.floor_place
  when is_full or ((first).due_us, (first).id) > ((floor).due_us, (floor).id) then first
  else floor
end;

comment on function dibs._moved_floor is
'Return where a floor is after a claim: at the first ticket that it took, or found and left, but not above `top_us`. A
look-back lowers the floor only if the claim took all that it wanted (`is_full`): then there may be more.';

create or replace function dibs._remember_floor(
  what text, queue_id integer, floor dibs.floor, old_floor dibs.floor, look_back bigint, took bigint) returns text
language plpgsql volatile
as $$
declare
  v_now bigint;
  v_hint dibs.floor;
  v_shared dibs.floor;
  v_remembered text;
begin
  if look_back > 0 then
    v_now := dibs._micros(clock_timestamp());
    if look_back < dibs._constant('unlimited_look_back_us') then
      floor.near_at := v_now + least(dibs._constant('look_back_cooldown') * took, 30000000);
      floor.near_step := (floor.near_step + 1) % 6;
    else
      floor.sweep_took := took;
      floor.sweep_at := v_now + dibs._constant('look_back_cooldown') * took;
      if took >= 2000 then
        -- Share only what this sweep found. The floors that it did not move are the session's, which its caller can
        -- forge: keep those of the last hint.
        v_shared := floor;
        v_hint := dibs._fit_floor(what, queue_id, null, floor.priorities, look_back);
        for n in 1 .. cardinality(floor.priorities) loop
          continue when (floor.due_us[n], floor.ids[n], floor.high_us[n])
            <> (old_floor.due_us[n], old_floor.ids[n], old_floor.high_us[n]);
          v_shared.due_us[n] := v_hint.due_us[n];
          v_shared.ids[n] := v_hint.ids[n];
          v_shared.high_us[n] := v_hint.high_us[n];
        end loop;
        insert into dibs.floor_hint (what, queue_id, swept_at, took, floor)
        values (what, queue_id, dibs._from_micros(v_now), took * interval '1 microsecond', v_shared);
      end if;
    end if;
  end if;
  v_remembered := floor::text;
  return dibs._remember(what, queue_id, v_remembered);
end
$$;

comment on function dibs._remember_floor is
'Remember in the session where the next claim starts, and after a look-back when the next one is due: it `took` so many
microseconds. An expensive sweep also leaves a hint for other connections. Returns the remembered text.';
