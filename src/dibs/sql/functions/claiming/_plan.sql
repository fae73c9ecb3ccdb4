-- The claim from several queues, or from one that is not simple: where it takes tickets, and in which order.

create or replace function dibs._find_heads(scans dibs.queue_scan[], at timestamptz)
returns table (
  scan_no integer, slot_no integer, priority smallint, floor_us bigint, floor_id uuid, head_at timestamptz,
  head_id uuid)
language sql stable
begin atomic
  select s.ordinality::integer, f.n::integer, f.priority, f.due_us, f.id, head.due_at, head.id
  from unnest(scans) with ordinality as s
  cross join lateral unnest((s.floor).priorities, (s.floor).due_us, (s.floor).ids) with ordinality
    as f (priority, due_us, id, n)
  cross join lateral (
    select dibs._from_micros(f.due_us - (s.floor).look_back) as from_at,
      case when (s.floor).look_back = 0 then f.id else dibs._nil_id() end as from_id) as start
  cross join lateral (
    select r.due_at, r.id from dibs.ready as r
    where r.queue_id = (s.queue).id and r.priority = f.priority and r.group_key is null
      and (r.due_at, r.id) >= (start.from_at, start.from_id) and r.due_at <= _find_heads.at
    order by r.due_at, r.id limit 1
  ) as head
  order by f.priority desc, head.due_at;
end;

comment on function dibs._find_heads is
'Return the first due ticket of each queue and priority that has one: the highest priority first, then the earliest due.
`slot_no` is the place of the priority in the arrays of the scan''s floor.';

create or replace function dibs._take_ungrouped(
  inout scans dibs.queue_scan[], want integer, claim dibs.claim_request, out batches dibs.taken_batch[],
  out taken integer)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_top bigint := dibs._micros(claim.at) - dibs._constant('commit_lag_us');
  v_head record;
  v_scan dibs.queue_scan;
  v_want integer;
  v_from_at timestamptz;
  v_from_id uuid;
  v_floor dibs.floor_place;
  v_next_floor dibs.floor_place;
  v_step record;
  v_batch dibs.taken_batch;
  v_admitted record;
  v_blocked integer := 0;
begin
  batches := '{}'::dibs.taken_batch[];
  taken := 0;
  for v_head in select h.* from dibs._find_heads(scans, claim.at) as h loop
    v_scan := scans[v_head.scan_no];
    v_floor := row(v_head.floor_us, v_head.floor_id);
    v_want := least(want - taken, v_scan.allowed);
    v_from_at := v_head.head_at;
    v_from_id := v_head.head_id;
    -- If nothing is taken here, the next floor is the head that we saw: the next claim skips the dead rows below it.
    v_next_floor := dibs._moved_floor(
      v_floor, row(dibs._micros(v_head.head_at), dibs._nil_id())::dibs.floor_place, v_top, false);
    while v_want > 0 loop
      v_step := dibs._take_priority((v_scan.queue).id, v_head.priority, v_floor, v_from_at, v_from_id, v_want,
        claim.at, v_top);
      exit when v_step.tickets is null;
      if (v_scan.queue).has_large then
        -- _keep_fitting may put any of these tickets back into ready: no floor above the first.
        v_next_floor := least(
          v_next_floor, row(dibs._micros(v_step.tickets[1].due_at), v_step.tickets[1].id)::dibs.floor_place);
      else
        v_next_floor := v_step.next_floor;
      end if;
      v_batch := dibs._taken_batch(v_scan.queue, v_step.tickets, claim.at, (v_scan.reservation).units);
      if (v_scan.queue).has_job_limits then
        v_admitted := dibs._admit_ungrouped(v_batch, v_head.priority, v_want, v_blocked);
        v_batch := v_admitted.batch;
        v_blocked := v_admitted.moved;
      end if;
      batches := batches || v_batch;
      taken := taken + cardinality(v_batch.tickets);
      v_scan.allowed := v_scan.allowed - cardinality(v_batch.tickets);
      exit when not (v_scan.queue).has_job_limits;
      if v_blocked >= dibs._constant('max_tickets_moved') then
        -- Ring, so that another claim goes on.
        perform pg_notify('dibs', (v_scan.queue).id::text) where (v_scan.queue).ring;
        exit;
      end if;
      exit when cardinality(v_step.tickets) < v_want;
      -- Take others in place of tickets that were blocked. Those taken are gone, so begin at the first of them again.
      v_from_at := v_step.tickets[1].due_at;
      v_from_id := v_step.tickets[1].id;
      v_want := least(want - taken, v_scan.allowed);
    end loop;
    v_scan.next_floor.due_us[v_head.slot_no] := v_next_floor.due_us;
    v_scan.next_floor.ids[v_head.slot_no] := v_next_floor.id;
    scans[v_head.scan_no] := v_scan;
  end loop;
end
$$;

comment on function dibs._take_ungrouped is
'Take up to `want` tickets without a group, by priority and then due time, and return them in `batches`, one for each
scan step. Tickets that need an exhausted limit are blocked, and others taken in their place. `scans` returns with the
next floor of each queue and what it may still take.';

create or replace function dibs._take_oldest(queues dibs.queue[], want integer, claim dibs.claim_request)
returns dibs.taken_batch[]
language plpgsql volatile
as $$
declare
  v_began constant bigint := dibs._micros(clock_timestamp());
  v_top constant bigint := dibs._micros(claim.at) - dibs._constant('commit_lag_us');
  v_scans dibs.queue_scan[] := '{}'::dibs.queue_scan[];
  v_batches dibs.taken_batch[] := '{}'::dibs.taken_batch[];
  v_queue dibs.queue;
  v_scan dibs.queue_scan;
  v_remembered dibs.floor;
  v_priorities smallint[];
  v_step record;
  v_startable integer;
  v_ungrouped_share integer := 0;
  v_has_limits boolean := false;
  v_has_groups boolean := false;
  v_took bigint;
begin
  foreach v_queue in array queues loop
    v_scan := null;
    v_scan.queue := v_queue;
    v_scan.allowed := want;
    if v_queue.has_limit then
      v_scan.reservation := dibs._reserve_queue_limit(v_queue, want, claim.at);
      v_scan.allowed := (v_scan.reservation).allowed;
      continue when v_scan.allowed = 0;
    end if;
    v_remembered := dibs._recall('floor', v_queue.id)::dibs.floor;
    v_priorities := dibs._priorities(v_queue);
    v_scan.floor := dibs._begin_scan('floor', v_queue.id, v_remembered, v_priorities, v_top, v_began);
    -- Start with every floor at the top. Priorities that still have tickets are lowered later.
    v_scan.next_floor := v_scan.floor;
    v_scan.next_floor.due_us := array_fill(v_top, array[cardinality(v_priorities)]);
    v_scan.next_floor.ids := array_fill(dibs._nil_id(), array[cardinality(v_priorities)]);
    v_scans := v_scans || v_scan;
    v_has_limits := v_has_limits or v_queue.has_job_limits;
    v_has_groups := v_has_groups or v_queue.has_groups;
  end loop;
  if cardinality(v_scans) = 0 then
    return v_batches;
  end if;
  if v_has_limits then
    v_scans := dibs._unblock_for_claim(v_scans, claim.at);
  end if;
  -- Serve groups first, but reserve a share for ungrouped jobs. If those do not use it, serve groups again.
  if v_has_groups then
    v_startable := least(want, (select sum(s.allowed) from unnest(v_scans) as s));
    v_ungrouped_share := dibs._ungrouped_share(v_scans, v_startable, claim.at);
    v_step := dibs._take_grouped(v_scans, v_startable - v_ungrouped_share, claim);
    v_scans := v_step.scans;
    v_batches := v_step.batches;
    want := want - v_step.taken;
  end if;
  v_step := dibs._take_ungrouped(v_scans, want, claim);
  v_scans := v_step.scans;
  v_batches := v_batches || v_step.batches;
  want := want - v_step.taken;
  v_took := (dibs._micros(clock_timestamp()) - v_began) / cardinality(v_scans);
  foreach v_scan in array v_scans loop
    perform dibs._end_scan('floor', (v_scan.queue).id, v_scan.floor, v_scan.next_floor, v_took);
  end loop;
  if v_ungrouped_share > 0 and want > 0 then
    v_step := dibs._take_grouped(v_scans, want, claim);
    v_scans := v_step.scans;
    v_batches := v_batches || v_step.batches;
  end if;
  -- Return the units and tokens of queues' own limits that were reserved and not used.
  perform case when (s.reservation).units is not null
      then dibs._return_units((s.reservation).limit_id, s.allowed, claim.at) end,
    case when (s.reservation).has_rate then dibs._return_tokens((s.reservation).limit_id, s.allowed) end
  from unnest(v_scans) as s where (s.queue).has_limit and s.allowed > 0;
  return v_batches;
end
$$;

comment on function dibs._take_oldest is
'Take up to `want` tickets of queues that are served oldest first: each group its share, ungrouped jobs by priority and
then due time.';

create or replace function dibs._take_from_queues(queues dibs.queue[], want integer, claim dibs.claim_request)
returns dibs.taken_batch[]
language plpgsql volatile
as $$
declare
  v_queue dibs.queue;
  v_oldest dibs.queue[] := '{}'::dibs.queue[];
  v_newest dibs.queue[] := '{}'::dibs.queue[];
  v_batches dibs.taken_batch[] := '{}'::dibs.taken_batch[];
  v_more dibs.taken_batch[];
  v_taken integer;
  v_counts_bytes boolean := false;
begin
  foreach v_queue in array queues loop
    v_counts_bytes := v_counts_bytes or v_queue.has_large;
    -- A queue with groups or limits is always served oldest first.
    if v_queue.newest_first and not (v_queue.has_limit or v_queue.has_job_limits or v_queue.has_groups) then
      v_newest := v_newest || v_queue;
    else
      v_oldest := v_oldest || v_queue;
    end if;
  end loop;
  if v_counts_bytes then
    -- _keep_fitting may put back tickets of each of them.
    for n in 1 .. cardinality(v_oldest) loop
      v_oldest[n].has_large := true;
    end loop;
  end if;
  if cardinality(v_newest) = 0 then
    v_batches := dibs._take_oldest(v_oldest, want, claim);
    return case when v_counts_bytes then dibs._keep_fitting(v_batches, claim.at) else v_batches end;
  end if;
  -- The two orders cannot be merged, so chance decides: the null queue, which stands for all of v_oldest, sorts before
  -- the newest-first queues or after them (0 or 1), and those are in random order. Thus none starves.
  for v_queue in
    select q.* from unnest(v_newest || null::dibs.queue) as q
    order by case when q.id is null then round(random()) else random() end
  loop
    if v_queue.id is null then
      v_more := dibs._take_oldest(v_oldest, want, claim);
      v_more := case when v_counts_bytes then dibs._keep_fitting(v_more, claim.at) else v_more end;
    else
      v_more := array[dibs._take_newest(v_queue, want, claim)];
    end if;
    v_taken := (select coalesce(sum(cardinality(t.tickets)), 0) from unnest(v_more) as t);
    v_batches := v_batches || v_more;
    want := want - v_taken;
    -- Each call counts its own bytes, so with bytes to count, only one of them may give tickets.
    exit when want = 0 or v_counts_bytes and v_taken > 0;
  end loop;
  return v_batches;
end
$$;

comment on function dibs._take_from_queues is
'Take up to `want` tickets of these queues. If bytes have to be counted, the tickets come either from the queues served
oldest first, or from one queue served newest first.';
