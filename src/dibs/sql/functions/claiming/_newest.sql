-- Newest first. A floor is of no use where new tickets come at the end that is claimed from; a hole takes its place: the
-- range of due times, for each priority, in which a connection has taken everything. A claim looks above it (gap 0) and
-- below it (gap 1). One hole is kept for each priority, the uppermost: to walk once over an older one again is cheap.

create or replace function dibs._find_gaps(floor dibs.floor, queue_id integer, back bigint, at timestamptz)
returns table (level integer, priority smallint, gap integer, upto_at timestamptz, upto_id uuid, from_at timestamptz)
language sql stable
begin atomic
  select l.n::integer, l.priority, g.gap, g.upto_at, g.upto_id, g.from_at
  from unnest((floor).priorities, (floor).due_us, (floor).ids, (floor).high_us) with ordinality
    as l (priority, low_us, low_id, high_us, n)
  cross join lateral (select l.high_us > 0 and back < dibs._unlimited_look_back_us() as is_hole) as h
  cross join lateral (
    select 0 as gap, _find_gaps.at as upto_at, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff' as upto_id,
      case when h.is_hole then dibs._from_micros(l.high_us - back) else timestamptz '-infinity' end as from_at
    union all
    select 1, dibs._from_micros(l.low_us), l.low_id, timestamptz '-infinity' where h.is_hole
  ) as g
  cross join lateral (
    select from dibs.ready as r
    where r.queue_id = _find_gaps.queue_id and r.priority = l.priority and r.group_key is null
      and (r.due_at, r.id) < (g.upto_at, g.upto_id) and r.due_at >= g.from_at
    order by r.due_at desc, r.id desc limit 1
  ) as r
  order by l.priority desc, g.gap;
end;

comment on function dibs._find_gaps is
'Above and below the holes of a queue, where there are tickets: the highest priority first, from the newest down. `back` looks
that far into the holes.';

create or replace function dibs._take_gap(
  queue_id integer, priority smallint, upto_at timestamptz, upto_id uuid, from_at timestamptz, want integer, at timestamptz)
returns dibs.ready[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tickets dibs.ready[];
begin
  with gone as (
    delete from dibs.ready as r where r.ctid = any (array(
      select r.ctid from dibs.ready as r
      where r.queue_id = _take_gap.queue_id and r.priority = _take_gap.priority and r.group_key is null
        and (r.due_at, r.id) < (_take_gap.upto_at, _take_gap.upto_id) and r.due_at >= _take_gap.from_at
        and r.expire_at > _take_gap.at
      order by r.due_at desc, r.id desc limit want
      for update skip locked))
    returning r, r.due_at, r.id
  )
  select coalesce(array_agg(g.r order by g.due_at desc, g.id desc), '{}') into v_tickets from gone as g;
  return v_tickets;
end
$$;

comment on function dibs._take_gap is 'Take up to `want` tickets of one gap, the latest due first.';

create or replace function dibs._take_newest(queue dibs.queue, want integer, claim dibs.claim_order) returns dibs.ready[]
language plpgsql volatile
as $$
declare
  v_began bigint := dibs._micros(clock_timestamp());
  v_top bigint := dibs._micros(claim.at) - dibs._commit_lag_us();
  v_told dibs.floor := dibs._recall('newest', queue.id)::dibs.floor;
  v_priorities smallint[] := dibs._priorities(queue);
  v_floor dibs.floor := dibs._read_floor('newest', queue.id, v_told, v_priorities, v_top);
  v_back bigint := dibs._look_back('newest', queue.id, v_floor, v_began);
  v_next dibs.floor := v_floor;
  v_stopped boolean[] := '{}'::boolean[];
  v_taken dibs.ready[] := '{}'::dibs.ready[];
  v_tickets dibs.ready[];
  v_counts_bytes boolean := dibs._counts_bytes(queue, want);
  v_fit dibs.taken_batch[];
  v_all integer;
  v_gap record;
  v_last dibs.ready;
begin
  -- What is found empty, or emptied, is one hole from the beginning of time up to the top.
  v_next.due_us := array_fill(0::bigint, array[cardinality(v_floor.due_us)]);
  v_next.ids := array_fill(dibs._nil_id(), array[cardinality(v_floor.due_us)]);
  v_next.high_us := array_fill(v_top, array[cardinality(v_floor.due_us)]);
  for v_gap in select g.* from dibs._find_gaps(v_floor, queue.id, v_back, claim.at) as g loop
    continue when v_stopped[v_gap.level];
    v_tickets := case when want > 0 then dibs._take_gap(queue.id, v_gap.priority, v_gap.upto_at, v_gap.upto_id, v_gap.from_at,
      want, claim.at) else '{}' end;
    want := want - cardinality(v_tickets);
    if v_counts_bytes and v_tickets <> '{}' then
      v_fit := dibs._fit_batches(array[row(queue, v_taken || v_tickets, null, null, null, claim.at)::dibs.taken_batch], claim.at);
      v_all := cardinality(v_taken || v_tickets);
      v_tickets := (v_fit[1].tickets)[cardinality(v_taken) + 1 :];
      want := case when cardinality(v_fit[1].tickets) < v_all then 0 else want end;
    end if;
    v_taken := v_taken || v_tickets;
    continue when want > 0;
    -- There may be more in this gap.
    v_stopped[v_gap.level] := true;
    v_last := v_tickets[cardinality(v_tickets)];
    if v_gap.gap = 0 and coalesce(dibs._micros(v_last.due_at), v_top) >= v_top then
      -- Nothing was taken, or only what is so new that others may still be committed beside it: the old hole stays.
      v_next.due_us[v_gap.level] := v_floor.due_us[v_gap.level];
      v_next.ids[v_gap.level] := v_floor.ids[v_gap.level];
      v_next.high_us[v_gap.level] := v_floor.high_us[v_gap.level];
    else
      v_next.due_us[v_gap.level] := coalesce(dibs._micros(v_last.due_at), v_floor.due_us[v_gap.level]);
      v_next.ids[v_gap.level] := coalesce(v_last.id, v_floor.ids[v_gap.level]);
    end if;
  end loop;
  perform dibs._write_floor('newest', queue.id, v_next, v_floor, v_back, dibs._micros(clock_timestamp()) - v_began);
  return v_taken;
end
$$;

comment on function dibs._take_newest is 'Take up to `want` tickets of a newest-first queue: by priority, then the latest due time.';
