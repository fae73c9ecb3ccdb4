-- Claims from a queue that is served newest first. New tickets come at the end that is claimed from, so a floor would
-- be of no use. A connection remembers a hole instead, for each priority: a range of due times in which it has taken
-- every ticket. A claim looks in two gaps, above the hole and then below it:
--
--   oldest                                                  now
--   ──── gap below ────[ low ▒▒▒▒▒ hole ▒▒▒▒▒ high ]── gap above ──▶
--
-- Each priority has one hole, the uppermost. Walking over an older one once more is cheap.

create or replace function dibs._find_gaps(floor dibs.floor, queue_id integer, at timestamptz)
returns table (
  slot_no integer, priority smallint, is_above boolean, upto_at timestamptz, upto_id uuid, from_at timestamptz)
language sql stable
begin atomic
  select f.n::integer, f.priority, gap.is_above, gap.upto_at, gap.upto_id, gap.from_at
  from unnest((floor).priorities, (floor).due_us, (floor).ids, (floor).high_us) with ordinality
    as f (priority, low_us, low_id, high_us, n)
  cross join lateral (
    select f.high_us > 0 and (floor).look_back < dibs._constant('unlimited_look_back_us') as exists) as hole
  cross join lateral (
    select true as is_above, _find_gaps.at as upto_at, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff' as upto_id,
      case when hole.exists then dibs._from_micros(f.high_us - (floor).look_back)
        else timestamptz '-infinity' end as from_at
    union all
    select false, dibs._from_micros(f.low_us), f.low_id, timestamptz '-infinity' where hole.exists
  ) as gap
  cross join lateral (
    select from dibs.ready as r
    where r.queue_id = _find_gaps.queue_id and r.priority = f.priority and r.group_key is null
      and (r.due_at, r.id) < (gap.upto_at, gap.upto_id) and r.due_at >= gap.from_at
    order by r.due_at desc, r.id desc limit 1
  ) as head
  order by f.priority desc, gap.is_above desc;
end;

comment on function dibs._find_gaps is
'Return the gaps of a queue that have tickets, each from its upper end (excluded) down to `from_at`: the highest
priority first, and the gap above the hole before the one below. A look-back extends the upper gap so many microseconds
into the hole; a sweep ignores the hole. `slot_no` is the place of the priority in the arrays of the floor.';

create or replace function dibs._take_newest(queue dibs.queue, want integer, claim dibs.claim_request)
returns dibs.taken_batch
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_began bigint := dibs._micros(clock_timestamp());
  v_top bigint := dibs._micros(claim.at) - dibs._constant('commit_lag_us');
  v_remembered dibs.floor := dibs._recall('newest', queue.id)::dibs.floor;
  v_priorities smallint[] := dibs._priorities(queue);
  v_floor dibs.floor := dibs._begin_scan('newest', queue.id, v_remembered, v_priorities, v_top, v_began);
  v_next_floor dibs.floor := v_floor;
  v_is_stopped boolean[] := '{}'::boolean[];
  v_batch dibs.taken_batch := dibs._taken_batch(queue, '{}', claim.at);
  v_before integer;
  v_tickets dibs.ready[];
  v_gap record;
  v_last dibs.ready;
begin
  -- If the claim empties both gaps of a priority, its hole reaches from the beginning of time up to the top.
  v_next_floor.due_us := array_fill(0::bigint, array[cardinality(v_floor.due_us)]);
  v_next_floor.ids := array_fill(dibs._nil_id(), array[cardinality(v_floor.due_us)]);
  v_next_floor.high_us := array_fill(v_top, array[cardinality(v_floor.due_us)]);
  for v_gap in select g.* from dibs._find_gaps(v_floor, queue.id, claim.at) as g loop
    continue when v_is_stopped[v_gap.slot_no];
    v_before := cardinality(v_batch.tickets);
    if want > 0 then
      with gone as (
        delete from dibs.ready as r where r.ctid = any (array(
          select r.ctid from dibs.ready as r
          where r.queue_id = queue.id and r.priority = v_gap.priority and r.group_key is null
            and (r.due_at, r.id) < (v_gap.upto_at, v_gap.upto_id) and r.due_at >= v_gap.from_at
            and r.expire_at > claim.at
          order by r.due_at desc, r.id desc limit want
          for update skip locked))
        returning r, r.due_at, r.id
      )
      select coalesce(array_agg(g.r order by g.due_at desc, g.id desc), '{}') into v_tickets from gone as g;
      want := want - cardinality(v_tickets);
      v_batch.tickets := v_batch.tickets || v_tickets;
      if queue.has_large then
        v_batch := (dibs._keep_fitting(array[v_batch], claim.at))[1];
        if cardinality(v_batch.tickets) < v_before + cardinality(v_tickets) then
          want := 0;
        end if;
      end if;
    end if;
    continue when want > 0;
    -- The claim stops in this gap, which may have more. The hole begins at the last ticket taken.
    v_is_stopped[v_gap.slot_no] := true;
    v_last := case when cardinality(v_batch.tickets) > v_before then v_batch.tickets[cardinality(v_batch.tickets)] end;
    if v_gap.is_above and coalesce(dibs._micros(v_last.due_at), v_top) >= v_top then
      -- No ticket was taken, or only ones above the top, where others may be inserted yet: keep the old hole.
      v_next_floor.due_us[v_gap.slot_no] := v_floor.due_us[v_gap.slot_no];
      v_next_floor.ids[v_gap.slot_no] := v_floor.ids[v_gap.slot_no];
      v_next_floor.high_us[v_gap.slot_no] := v_floor.high_us[v_gap.slot_no];
    else
      v_next_floor.due_us[v_gap.slot_no] := coalesce(dibs._micros(v_last.due_at), v_floor.due_us[v_gap.slot_no]);
      v_next_floor.ids[v_gap.slot_no] := coalesce(v_last.id, v_floor.ids[v_gap.slot_no]);
    end if;
  end loop;
  perform dibs._end_scan('newest', queue.id, v_floor, v_next_floor, dibs._micros(clock_timestamp()) - v_began);
  return v_batch;
end
$$;

comment on function dibs._take_newest is
'Take up to `want` tickets of a queue served newest first: by priority, then the latest due first. If bytes are counted,
also no more than fit into a claim.';
