-- How a claim serves the groups of a queue.

create or replace function dibs._prepare_hands(queue dibs.queue, number integer, hands dibs.group_hand[], at timestamptz)
returns dibs.group_hand[]
language plpgsql volatile
as $$
begin
  if (queue).noisy_share is not null and number > 0 then
    hands := dibs._set_noisy_aside(queue, hands, at);
  end if;
  if (queue).has_group_policy then
    hands := dibs._lock_group_gates(queue, hands, at);
  end if;
  return coalesce(hands, '{}');
end
$$;

comment on function dibs._prepare_hands is 'Leave the noisy groups out, and add what policies say.';

create or replace function dibs._width(queue dibs.queue, want integer) returns integer
language plpgsql stable
as $$
begin
  -- With weights a share may be less than a job: more groups than jobs are looked at, and a draw decides.
  return case when (queue).has_group_policy and exists (
    select from dibs.group_policy as p where p.queue_id = (queue).id and p.weight > 1) then greatest(want, 8) else want end;
end
$$;

comment on function dibs._width is 'How many pointers a claim takes at once.';

create or replace function dibs._serve_groups(
  queue dibs.queue, number integer, from_at timestamptz, from_n bigint, want integer, queue_units dibs.held_units, at timestamptz,
  out batches dibs.taken_batch[], out missing integer, out first_at timestamptz, out first_n bigint)
language plpgsql volatile
as $$
declare
  v_plain constant boolean := not (queue).has_group_policy and (queue).noisy_share is null;
  v_width integer := dibs._width(queue, want);
  v_hands dibs.group_hand[] := '{}'::dibs.group_hand[];
  v_start integer := 1;
  v_more boolean := true;
  v_seen boolean := false;
  v_new record;
  v_catch dibs.group_catch;
  v_taken integer[] := '{}'::integer[];
  v_shut integer[] := '{}'::integer[];
  v_ord integer;
  v_batch dibs.taken_batch;
  v_moved integer := 0;
begin
  missing := want;
  batches := '{}'::dibs.taken_batch[];
  while missing > 0 loop
    v_catch := null;
    if v_more then
      v_new := dibs._take_pointers((queue).id, number, from_at, from_n, v_width, array(select h.group_key from unnest(v_hands) as h),
        v_plain and cardinality(v_hands) = 0, at);
      v_more := v_new.is_full;
      v_catch := row(v_new.tickets, null, v_new.ords, v_new.asked);
      v_start := cardinality(v_hands) + 1;
      v_hands := v_hands || dibs._prepare_hands(queue, number, v_new.hands, at);
      first_at := coalesce(first_at, v_new.hands[1].place);
      first_n := coalesce(first_n, v_new.hands[1].n);
      -- What other claimers have merged may have ended after our clock was read, but not after we locked the group.
      at := case when v_plain then at else dibs.now() end;
    end if;
    if not v_more and not v_seen and v_catch.ords is null then
      -- These are all that are free. Those that other claimers hold have their share, too.
      v_seen := true;
      v_start := 1;
      v_hands := v_hands || dibs._prepare_hands(queue, number,
        dibs._see_pointers(number, from_at, v_width, array(select h.group_key from unnest(v_hands) as h), at), at);
    end if;
    v_taken := v_taken || array_fill(0, array[cardinality(v_hands) - cardinality(v_taken)]);
    if v_catch.ords is null then
      v_catch := dibs._take_tickets(queue, v_hands, v_start, v_shut, v_taken, missing, at);
      exit when v_catch.asked is null and not v_more;
    end if;
    if cardinality(v_catch.asked) is distinct from cardinality(v_catch.ords) then
      v_shut := v_shut || array(select a from unnest(v_catch.asked) as a where coalesce(a <> all (v_catch.ords), true));
    end if;
    v_width := least(v_width * 4, 10000);
    continue when v_catch.ords is null;
    foreach v_ord in array v_catch.ords loop
      v_taken[v_ord] := v_taken[v_ord] + 1;
    end loop;
    v_batch := row(queue, v_catch.tickets, v_catch.group_holds, queue_units, null, at);
    if (queue).has_job_limits then
      v_batch := (dibs._admit_tickets(v_batch, at)).batch;
      v_moved := v_moved + cardinality(v_catch.tickets) - cardinality(v_batch.tickets);
    end if;
    batches := batches || v_batch;
    missing := missing - cardinality(v_batch.tickets);
    v_width := missing;
    exit when v_moved > 0 and dibs._has_moved_enough(queue, 5 * v_moved);  -- Rounds of groups take longer than those of plain tickets.
  end loop;
  perform dibs._put_pointers(queue, number, v_hands, v_taken, v_shut, want, missing, at) where cardinality(v_hands) > 0;
end
$$;

comment on function dibs._serve_groups is
'Take up to `want` tickets of a queue''s groups. Says which and when, how many are missing, and where the first pointer was.';

create or replace function dibs._claim_groups(
  queue dibs.queue, want integer, queue_units dibs.held_units, at timestamptz, out batches dibs.taken_batch[], out taken integer)
language plpgsql volatile
as $$
declare
  v_id constant integer := (queue).id;
  v_top constant bigint := dibs._micros(at) - dibs._commit_lag_us();
  v_began constant bigint := dibs._micros(clock_timestamp());
  v_kept constant dibs.floor := dibs._recall('rotation', v_id)::dibs.floor;
  v_told constant dibs.floor := dibs._read_floor('rotation', v_id, v_kept, '{0}', v_top);
  v_floor dibs.floor := v_told;
  v_back constant bigint := dibs._look_back('rotation', v_id, v_floor, v_began);
  v_got record;
  v_first bigint;
begin
  if (queue).noisy_share is not null then
    perform dibs._mark_noisy(queue, at);
  elsif v_back > 0 then
    perform dibs._end_noise(queue, at);
  end if;
  v_got := dibs._serve_groups(queue, v_id, dibs._from_micros(v_floor.due_us[1] - v_back),
    case when v_back = 0 then dibs._pointer_number(v_floor.ids[1]) else 0 end, want, queue_units, at);
  batches := v_got.batches;
  taken := want - v_got.missing;
  -- The floor is the first pointer taken, as with tickets; where only those of others were seen it stays.
  v_first := dibs._micros(v_got.first_at);
  if v_first >= v_top or v_first is null and cardinality(batches) = 0 then
    v_floor.due_us[1] := v_top;
    v_floor.ids[1] := dibs._nil_id();
  elsif v_first is not null and taken = want or v_first > v_floor.due_us[1] then
    v_floor.due_us[1] := v_first;
    v_floor.ids[1] := dibs._pointer_key(v_got.first_n);
  end if;
  perform dibs._remember_floor('rotation', v_id, v_floor, v_told, v_back, dibs._micros(clock_timestamp()) - v_began);

  if (queue).noisy_share is not null and taken < want then
    v_got := dibs._serve_groups(queue, -v_id, '-infinity', 0, want - taken, queue_units, at);
    batches := batches || v_got.batches;
    taken := want - v_got.missing;
  end if;
end
$$;

comment on function dibs._claim_groups is
'Take up to `want` tickets of a queue''s groups. Each group that has jobs gets its share; noisy ones what the others leave.';

create or replace function dibs._take_groups(
  inout scans dibs.queue_scan[], want integer, claim dibs.claim_request, out batches dibs.taken_batch[], out taken integer)
language plpgsql volatile
as $$
declare
  v_scan record;
  v_got record;
begin
  batches := '{}'::dibs.taken_batch[];
  taken := 0;
  for v_scan in
    -- In any order, so that no queue with groups is always the first.
    select s.queue, s.reservation, s.allowed, s.ordinality::integer as n from unnest(scans) with ordinality as s
    where (s.queue).has_groups order by random()
  loop
    exit when taken = want;
    continue when v_scan.allowed = 0;
    v_got := dibs._claim_groups(v_scan.queue, least(want - taken, v_scan.allowed), (v_scan.reservation).units, claim.at);
    scans[v_scan.n].allowed := v_scan.allowed - v_got.taken;
    taken := taken + v_got.taken;
    batches := batches || v_got.batches;
  end loop;
end
$$;

comment on function dibs._take_groups is 'Take up to `want` tickets of groups, and say how the scans stand after it.';
