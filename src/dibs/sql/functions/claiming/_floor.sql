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
'Return the priorities at which jobs of a queue may wait, the highest first: its own and those noted.';

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

create or replace function dibs._prepare_floor(
  what text, queue_id integer, remembered dibs.floor, priorities smallint[], top_us bigint, began_us bigint)
returns dibs.floor
language plpgsql volatile
as $$
declare
  v_floor dibs.floor := remembered;
  v_is_sweep_due boolean;
  v_began timestamptz;
  v_cooldown bigint;
  v_hint record;
begin
  if remembered.reuse_until is null then  -- Nothing is remembered.
    select h.* into v_hint from dibs.floor_hint as h
    where h.what = _prepare_floor.what and h.queue_id = _prepare_floor.queue_id order by h.swept_at desc limit 1;
    v_floor := v_hint.floor;
    v_floor.sweep_at := coalesce(dibs._micros(v_hint.swept_at), 0);
    v_floor.sweep_took := coalesce(dibs._micros('epoch'::timestamptz + v_hint.took), 0);
    v_floor.near_at := 0;
    v_floor.near_step := 0;
    v_floor.reuse_until := 0;
  end if;
  if (v_floor.priorities = priorities
      and top_us >= all (v_floor.due_us) and top_us >= all (v_floor.high_us)) is not true then
    select array_agg(coalesce(f.due_us, 0) order by p.n), array_agg(coalesce(f.id, dibs._nil_id()) order by p.n),
      array_agg(coalesce(f.high_us, 0) order by p.n)
    into v_floor.due_us, v_floor.ids, v_floor.high_us
    from unnest(priorities) with ordinality as p (priority, n)
    left join unnest(v_floor.priorities, v_floor.due_us, v_floor.ids, v_floor.high_us)
      as f (priority, due_us, id, high_us)
      on f.priority = p.priority and greatest(f.due_us, f.high_us) <= top_us;
    v_floor.priorities := priorities;
    v_floor.reuse_until := 0;
  end if;
  -- A look-back is due at its time, and also if that is further ahead than we would set it: the clock was set back.
  v_is_sweep_due := v_floor.sweep_at - began_us
    not between 1 and dibs._constant('look_back_cooldown') * v_floor.sweep_took;
  if v_is_sweep_due and v_floor.sweep_took >= 2000 then
    -- 1. Toss a coin. A sweep that hits the statement timeout is due again at once: without the coin no claim would
    -- succeed.
    v_is_sweep_due := random() < 0.5;
    v_began := dibs._from_micros(began_us);
    v_cooldown := dibs._constant('look_back_cooldown');
    select h.ctid as row_id, h.took, h.swept_at + v_cooldown * h.took as ends_at into v_hint from dibs.floor_hint as h
    where v_is_sweep_due and h.what = _prepare_floor.what and h.queue_id = _prepare_floor.queue_id
      and h.swept_at <= v_began
    order by h.swept_at desc limit 1;
    -- 2. Wait for the cooldown of the last sweep of any connection.
    if v_hint.ends_at > v_began then
      v_is_sweep_due := false;
    elsif v_hint.row_id is not null then
      -- 3. Lock the newest hint, so that one connection at a time sweeps. If another keeps it locked for one more
      -- cooldown, sweep without the lock, in the time slot of this PID.
      perform from dibs.floor_hint as h where h.ctid = v_hint.row_id for update skip locked;
      v_is_sweep_due := found or v_hint.ends_at + v_cooldown * v_hint.took <= v_began
        and trunc(extract(epoch from v_began) / extract(epoch from v_hint.took)) % v_cooldown
          = pg_backend_pid() % v_cooldown;
    end if;
  end if;
  v_floor.look_back := case
    when v_is_sweep_due then dibs._constant('unlimited_look_back_us')
    when v_floor.near_at - began_us not between 1 and dibs._constant('near_cooldown_us')
      then 500000 << v_floor.near_step
    else 0 end;
  return v_floor;
end
$$;

comment on function dibs._prepare_floor is
'Return the floor of a scan that cannot use the remembered one unchanged: arrange it for these priorities (the newest
hint, if it is null), and decide how far to look back. A priority that it lacks starts at the beginning of time. So does
one whose floor lies above `top_us`: the clock was set back, and tickets below that floor may be due now. Where sweeps
are expensive, one connection at a time sweeps, after the cooldown of the last sweep; it locks the newest hint until the
transaction ends.';

create or replace function dibs._begin_scan(
  what text, queue_id integer, remembered dibs.floor, priorities smallint[], top_us bigint, began_us bigint)
returns dibs.floor
language sql volatile
return case
  -- The remembered floor is of these priorities, and nowhere above the top.
  when (remembered).priorities = priorities and top_us >= all ((remembered).due_us)
    and top_us >= all ((remembered).high_us)
    -- No look-back is due: the time of each is ahead, and not further ahead than we would set it.
    and (remembered).sweep_at - began_us between 1 and dibs._constant('look_back_cooldown') * (remembered).sweep_took
    and (remembered).near_at - began_us between 1 and dibs._constant('near_cooldown_us')
  then remembered
  else dibs._prepare_floor(what, queue_id, remembered, priorities, top_us, began_us)
end;

comment on function dibs._begin_scan is
'Return the floor from which a claim scans these priorities: the one that its session remembers, otherwise the newest
hint, otherwise the beginning of time. No part of it is above `top_us`. Its `look_back` is how many microseconds below
it the claim starts: usually 0; now and then 0.5 to 16 s (a near look-back) or everything (a sweep). `began_us` is the
time of the real clock. The planner inlines it.';

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
'Return where a floor is after a claim. `first` is the first ticket that the claim took; if it took none, the first that
it saw. The floor rises to it, but not above `top_us`. After a look-back the floor falls to it only if the claim took
all that it wanted (`is_full`): then more may be there.';

create or replace function dibs._end_scan(
  what text, queue_id integer, floor dibs.floor, next_floor dibs.floor, took bigint)
returns text
language plpgsql volatile
as $$
declare
  v_now bigint;
  v_hint dibs.floor;
  v_shared dibs.floor;
  v_remembered text;
begin
  if floor.look_back > 0 then
    next_floor.look_back := 0;
    v_now := dibs._micros(clock_timestamp());
    if floor.look_back < dibs._constant('unlimited_look_back_us') then
      next_floor.near_at := v_now
        + least(dibs._constant('look_back_cooldown') * took, dibs._constant('near_cooldown_us'));
      next_floor.near_step := (floor.near_step + 1) % 6;
    else
      next_floor.sweep_took := took;
      next_floor.sweep_at := v_now + dibs._constant('look_back_cooldown') * took;
      if took >= 2000 then
        -- The hint may have only places that this sweep found. A floor that it did not move is a value that the session
        -- remembered, which its caller can forge: replace it by the one of the last hint. The sweep has no upper limit
        -- for a floor, so give its look-back for `top_us`.
        v_shared := next_floor;
        v_hint := dibs._prepare_floor(what, queue_id, null, floor.priorities, floor.look_back, v_now);
        for n in 1 .. cardinality(floor.priorities) loop
          continue when (floor.due_us[n], floor.ids[n], floor.high_us[n])
            <> (next_floor.due_us[n], next_floor.ids[n], next_floor.high_us[n]);
          v_shared.due_us[n] := v_hint.due_us[n];
          v_shared.ids[n] := v_hint.ids[n];
          v_shared.high_us[n] := v_hint.high_us[n];
        end loop;
        insert into dibs.floor_hint (what, queue_id, swept_at, took, floor)
        values (what, queue_id, dibs._from_micros(v_now), took * interval '1 microsecond', v_shared);
      end if;
    end if;
  end if;
  v_remembered := next_floor::text;
  return dibs._remember(what, queue_id, v_remembered);
end
$$;

comment on function dibs._end_scan is
'Remember in the session where the next claim starts (`next_floor`), and after a look-back when the next one is due: it
`took` so many microseconds. `floor` is what _begin_scan returned. An expensive sweep also leaves a hint for other
connections. Returns the remembered text.';
