-- A claim of grouped jobs: all queues, one queue, one rotation. README.md, "A claim", has the steps.

create or replace function dibs._serve_rotation(
  queue dibs.queue, rotation integer, from_at timestamptz, from_n bigint, want integer,
  queue_units dibs.held_units, at timestamptz,
  out batches dibs.taken_batch[], out missing integer, out first_at timestamptz, out first_n bigint)
language plpgsql volatile
as $$
declare
  v_is_simple constant boolean := not (queue).has_group_policy and (queue).noisy_share is null;
  v_now timestamptz := at;
  v_search dibs.group_search;
  v_step record;
  v_round dibs.group_tickets;
  v_counts integer[] := '{}'::integer[];  -- By number of the candidate: how many tickets it gave.
  v_exhausted integer[] := '{}'::integer[];  -- Numbers of the candidates that were tried and gave none.
  v_no integer;
  v_batch dibs.taken_batch;
  v_blocked integer := 0;
begin
  missing := want;
  batches := '{}'::dibs.taken_batch[];
  v_batch.queue := queue;
  v_batch.queue_units := queue_units;
  v_search.rotation := rotation;
  v_search.from_at := from_at;
  v_search.from_n := from_n;
  v_search.candidates := '{}'::dibs.group_candidate[];
  v_search.has_more := true;
  v_search.has_all := false;
  v_search.width := want;
  if (queue).has_group_policy
    and exists (select from dibs.group_policy as p where p.queue_id = (queue).id and p.weight > 1) then
    -- A share may be less than one job: look at more groups than there are jobs to take.
    v_search.width := greatest(want, 8);
  end if;
  while missing > 0 loop
    v_round.tickets := '{}'::dibs.ready[];
    if not v_search.has_all then
      v_step := dibs._add_candidates(queue, v_search, v_is_simple, v_now);
      v_search := v_step.search;
      v_round := v_step.first_tickets;
      if not v_is_simple then
        v_now := dibs.now();  -- The gates may count runs that ended after the claim began.
      end if;
    end if;
    if cardinality(v_round.tickets) = 0 then
      v_round := dibs._take_tickets(
        queue, v_search.candidates, v_search.first_no, v_exhausted, v_counts, missing, v_now);
      exit when cardinality(v_round.tried_nos) = 0 and not v_search.has_more;
    end if;
    if cardinality(v_round.tried_nos) <> cardinality(v_round.candidate_nos) then
      v_exhausted := v_exhausted || array(
        select t.no from unnest(v_round.tried_nos) as t (no) where t.no <> all (v_round.candidate_nos));
    end if;
    v_search.width := least(v_search.width * 4, 10000);
    continue when cardinality(v_round.tickets) = 0;

    foreach v_no in array v_round.candidate_nos loop
      v_counts[v_no] := coalesce(v_counts[v_no], 0) + 1;
    end loop;
    v_batch.tickets := v_round.tickets;
    v_batch.group_holds := v_round.group_holds;
    v_batch.job_units := null;
    v_batch.at := v_now;
    if (queue).has_job_limits then
      v_batch := (dibs._admit_tickets(v_batch, v_now)).batch;
      v_blocked := v_blocked + cardinality(v_round.tickets) - cardinality(v_batch.tickets);
    end if;
    batches := batches || v_batch;
    missing := missing - cardinality(v_batch.tickets);
    v_search.width := missing;
    -- Stop early: a round of groups takes longer than one of ungrouped tickets.
    exit when v_blocked > 0 and dibs._has_moved_enough(queue, 5 * v_blocked);
  end loop;
  first_at := v_search.first_at;
  first_n := v_search.first_n;
  if cardinality(v_search.candidates) > 0 then
    perform dibs._reinsert_pointers(
      queue, rotation, v_search.candidates, v_counts, v_exhausted, want, missing, v_now);
  end if;
end
$$;

comment on function dibs._serve_rotation is
'Take up to `want` tickets of the groups in one rotation, from the pointer (from_at, from_n) on. Return how many are
`missing`, and the first pointer taken (first_at, first_n); null if none was.';

create or replace function dibs._take_from_groups(
  queue dibs.queue, want integer, queue_units dibs.held_units, at timestamptz,
  out batches dibs.taken_batch[], out taken integer)
language plpgsql volatile
as $$
declare
  v_id constant integer := (queue).id;
  v_top_us constant bigint := dibs._micros(at) - dibs._constant('commit_lag_us');
  v_began_us constant bigint := dibs._micros(clock_timestamp());
  v_old constant dibs.floor := dibs._read_floor(
    'rotation', v_id, dibs._recall('rotation', v_id)::dibs.floor, '{0}', v_top_us);
  v_floor dibs.floor := v_old;
  v_look_back_us constant bigint := dibs._look_back('rotation', v_id, v_old, v_began_us);
  v_served record;
  v_first_us bigint;
begin
  if (queue).noisy_share is not null then
    perform dibs._mark_noisy_groups(queue, at);
  elsif v_look_back_us > 0 then
    perform dibs._unmark_noisy_groups(queue, at);
  end if;
  -- A floor has uuids: it keeps the number of a pointer as one.
  v_served := dibs._serve_rotation(queue, v_id, dibs._from_micros(v_old.due_us[1] - v_look_back_us),
    case when v_look_back_us > 0 then 0
      else ('x' || right(replace(v_old.ids[1]::text, '-', ''), 16))::bit(64)::bigint end,
    want, queue_units, at);
  batches := v_served.batches;
  taken := want - v_served.missing;
  -- Raise the floor to the first pointer taken, at most to the top; leave it if only other claims' groups were served.
  v_first_us := dibs._micros(v_served.first_at);
  if v_first_us >= v_top_us or v_first_us is null and cardinality(batches) = 0 then
    v_floor.due_us[1] := v_top_us;
    v_floor.ids[1] := dibs._nil_id();
  elsif v_first_us is not null and taken = want or v_first_us > v_floor.due_us[1] then
    v_floor.due_us[1] := v_first_us;
    v_floor.ids[1] := lpad(to_hex(v_served.first_n), 32, '0')::uuid;
  end if;
  perform dibs._remember_floor(
    'rotation', v_id, v_floor, v_old, v_look_back_us, dibs._micros(clock_timestamp()) - v_began_us);

  if (queue).noisy_share is not null and taken < want then
    v_served := dibs._serve_rotation(queue, -v_id, '-infinity', 0, want - taken, queue_units, at);
    batches := batches || v_served.batches;
    taken := want - v_served.missing;
  end if;
end
$$;

comment on function dibs._take_from_groups is
'Take up to `want` tickets of a queue''s groups. Each group gets its share; noisy groups get what the others leave.';

create or replace function dibs._take_grouped(
  inout scans dibs.queue_scan[], want integer, claim dibs.claim_request,
  out batches dibs.taken_batch[], out taken integer)
language plpgsql volatile
as $$
declare
  v_scan record;
  v_served record;
begin
  batches := '{}'::dibs.taken_batch[];
  taken := 0;
  for v_scan in
    -- In random order, so that no queue is always the first.
    select s.queue, s.reservation, s.allowed, s.ordinality::integer as no from unnest(scans) with ordinality as s
    where (s.queue).has_groups order by random()
  loop
    exit when taken = want;
    continue when v_scan.allowed = 0;
    v_served := dibs._take_from_groups(
      v_scan.queue, least(want - taken, v_scan.allowed), (v_scan.reservation).units, claim.at);
    scans[v_scan.no].allowed := v_scan.allowed - v_served.taken;
    taken := taken + v_served.taken;
    batches := batches || v_served.batches;
  end loop;
end
$$;

comment on function dibs._take_grouped is
'Take up to `want` grouped tickets of the queues in `scans`, and return the scans with fewer jobs allowed.';
