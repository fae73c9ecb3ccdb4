-- A claim of grouped jobs: one rotation, and all queues. README.md, "A claim", has the steps.

create or replace function dibs._serve_rotation(
  queue dibs.queue, rotation integer, from_at timestamptz, from_n bigint, want integer,
  queue_units dibs.held_units, at timestamptz,
  out batches dibs.taken_batch[], out taken integer, out first_at timestamptz, out first_n bigint)
language plpgsql volatile
as $$
declare
  -- Without rules every weight is 1 and no group is limited: the first step takes tickets together with pointers.
  v_has_rules constant boolean := (queue).has_group_policy or (queue).noisy_share is not null;
  v_now timestamptz := at;
  v_search dibs.group_search;
  v_step record;
  v_round dibs.group_tickets;
  v_counts integer[] := '{}'::integer[];  -- How many tickets each candidate gave, by its number.
  v_exhausted integer[] := '{}'::integer[];  -- The numbers of those tried that gave none.
  v_no integer;
  v_batch dibs.taken_batch;
  v_blocked integer := 0;
begin
  taken := 0;
  batches := '{}'::dibs.taken_batch[];
  v_search.rotation := rotation;
  v_search.from_at := from_at;
  v_search.from_n := from_n;
  v_search.candidates := '{}'::dibs.group_candidate[];
  v_search.has_more_pointers := true;
  v_search.includes_others := false;
  v_search.width := want;
  if (queue).has_group_policy
    and exists (select from dibs.group_policy as p where p.queue_id = (queue).id and p.weight > 1) then
    -- A share may be less than one job: look at more groups than there are jobs to take.
    v_search.width := greatest(want, 8);
  end if;
  while taken < want loop
    v_round.tickets := '{}'::dibs.ready[];
    if not v_search.includes_others then
      v_step := dibs._add_candidates(queue, v_search, not v_has_rules, v_now);
      v_search := v_step.search;
      v_round := v_step.early_tickets;
      if v_has_rules then
        v_now := dibs.now();  -- No job starts before the end of the run in whose place it starts.
      end if;
    end if;
    if cardinality(v_round.tickets) = 0 then
      v_round := dibs._take_tickets(
        queue, v_search.candidates, v_search.first_tried_no, v_exhausted, v_counts, want - taken, v_now);
      -- Stop if no candidate was left to try.
      exit when cardinality(v_round.tickets) = 0 and cardinality(v_round.exhausted_nos) = 0
        and not v_search.has_more_pointers;
    end if;
    v_exhausted := v_exhausted || v_round.exhausted_nos;
    if cardinality(v_round.tickets) = 0 then
      v_search.width := least(v_search.width * 4, 10000);
      continue;
    end if;

    foreach v_no in array v_round.candidate_nos loop
      v_counts[v_no] := coalesce(v_counts[v_no], 0) + 1;
    end loop;
    v_batch := dibs._taken_batch(queue, v_round.tickets, v_now, queue_units);
    v_batch.group_holds := v_round.group_holds;
    if (queue).has_job_limits then
      v_batch := (dibs._admit_tickets(v_batch)).batch;
      v_blocked := v_blocked + cardinality(v_round.tickets) - cardinality(v_batch.tickets);
    end if;
    batches := batches || v_batch;
    taken := taken + cardinality(v_batch.tickets);
    v_search.width := want - taken;
    -- Rounds of groups are slow: stop early and ring.
    if 5 * v_blocked >= dibs._constant('max_tickets_moved') then
      perform pg_notify('dibs', queue.id::text) where queue.ring;
      exit;
    end if;
  end loop;
  first_at := v_search.first_at;
  first_n := v_search.first_n;
  if cardinality(v_search.candidates) > 0 then
    perform dibs._reinsert_pointers(queue, rotation, v_search.candidates, v_counts, v_exhausted, want, taken, v_now);
  end if;
end
$$;

comment on function dibs._serve_rotation is
'Take up to `want` tickets of the groups in one rotation, from the pointer (from_at, from_n) on. Return them in
`batches`, their number (`taken`), and look_at and n of the first pointer that this claim deleted (first_at, first_n),
both null if it deleted none.';

create or replace function dibs._take_grouped(
  inout scans dibs.queue_scan[], want integer, claim dibs.claim_request,
  out batches dibs.taken_batch[], out taken integer)
language plpgsql volatile
as $$
declare
  v_top_us constant bigint := dibs._micros(claim.at) - dibs._constant('commit_lag_us');
  v_began_us bigint;
  v_scan record;
  v_queue dibs.queue;
  v_want integer;
  v_remembered dibs.floor;
  -- The rotation's floor, as this session remembers it: look_at and n of a pointer. A dibs.floor has room for a uuid,
  -- not for n: its 32 digits are those of n, with leading zeros.
  v_rotation_floor dibs.floor;
  v_next_floor dibs.floor;
  v_from_n bigint;
  v_served record;
  v_place dibs.floor_place;
begin
  batches := '{}'::dibs.taken_batch[];
  taken := 0;
  for v_scan in
    -- In random order, so that no queue is always the first.
    select s.queue, s.reservation, s.allowed, s.ordinality::integer as no from unnest(scans) with ordinality as s
    where (s.queue).has_groups order by random()
  loop
    v_queue := v_scan.queue;
    v_want := least(want - taken, v_scan.allowed);
    continue when v_want = 0;
    v_began_us := dibs._micros(clock_timestamp());
    v_remembered := dibs._recall('rotation', v_queue.id)::dibs.floor;
    v_rotation_floor := dibs._begin_scan('rotation', v_queue.id, v_remembered, '{0}', v_top_us, v_began_us);
    if v_queue.noisy_share is not null or v_rotation_floor.look_back > 0 then
      perform dibs._refresh_noisy_rotation(v_queue, claim.at);
    end if;
    v_from_n := case when v_rotation_floor.look_back > 0 then 0
      else replace(v_rotation_floor.ids[1]::text, '-', '')::bigint end;
    v_served := dibs._serve_rotation(
      v_queue, v_queue.id, dibs._from_micros(v_rotation_floor.due_us[1] - v_rotation_floor.look_back), v_from_n,
      v_want, (v_scan.reservation).units, claim.at);
    v_place := row(v_rotation_floor.due_us[1], v_rotation_floor.ids[1]);
    if v_served.first_at is not null then
      -- Move the floor to the first pointer that this claim deleted.
      v_place := dibs._moved_floor(
        v_place, row(dibs._micros(v_served.first_at), lpad(v_served.first_n::text, 32, '0')::uuid)::dibs.floor_place,
        v_top_us, v_served.taken = v_want);
    elsif cardinality(v_served.batches) = 0 then
      -- There was nothing to take: move it to the top.
      v_place := row(v_top_us, dibs._nil_id());
    end if;
    -- Otherwise this claim took tickets only of groups whose pointers others have locked: the floor stays.
    v_next_floor := v_rotation_floor;
    v_next_floor.due_us[1] := v_place.due_us;
    v_next_floor.ids[1] := v_place.id;
    perform dibs._end_scan(
      'rotation', v_queue.id, v_rotation_floor, v_next_floor, dibs._micros(clock_timestamp()) - v_began_us);
    batches := batches || v_served.batches;
    taken := taken + v_served.taken;
    scans[v_scan.no].allowed := v_scan.allowed - v_served.taken;

    v_want := v_want - v_served.taken;
    if v_queue.noisy_share is not null and v_want > 0 then
      -- Look up to the present: the pointers of noisy groups that this claim has found are later than claim.at.
      v_served := dibs._serve_rotation(
        v_queue, -v_queue.id, '-infinity', 0, v_want, (v_scan.reservation).units, dibs.now());
      batches := batches || v_served.batches;
      taken := taken + v_served.taken;
      scans[v_scan.no].allowed := scans[v_scan.no].allowed - v_served.taken;
    end if;
  end loop;
end
$$;

comment on function dibs._take_grouped is
'Take up to `want` grouped tickets of the queues in `scans`: in each queue those of the ordinary rotation, then those of
noisy groups. Return the tickets in `batches`, their number (`taken`), and the scans, which allow fewer jobs now.';
