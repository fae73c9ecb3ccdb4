-- What has no group, from the oldest end: by priority, then due time.

create or replace function dibs._find_heads(scans dibs.queue_scan[], at timestamptz) returns setof dibs.head
language sql stable
begin atomic
  select s.ordinality::integer, l.n::integer, l.priority, l.due_us, l.id, r.due_at, r.id, coalesce(l.brought, 0)
  from unnest(scans) with ordinality as s
  cross join lateral unnest((s.floor).priorities, (s.floor).due_us, (s.floor).ids, s.low_at, s.low_ids, s.brought)
    with ordinality as l (priority, due_us, id, low_at, low_id, brought, n)
  cross join lateral (
    select least(l.low_at, dibs._from_micros(l.due_us - s.back)) as from_at,
      case when s.back = 0 then coalesce(l.low_id, l.id) else dibs._nil_id() end as from_id) as b
  cross join lateral (
    select r.due_at, r.id from dibs.ready as r
    where r.queue_id = (s.queue).id and r.priority = l.priority and r.lane is null
      and (r.due_at, r.id) >= (b.from_at, b.from_id) and r.due_at <= _find_heads.at
    order by r.due_at, r.id limit 1
  ) as r
  order by l.priority desc, r.due_at;
end;

comment on function dibs._find_heads is
'The head of every queue and priority that has one: the highest priority first, then the earliest due.';

create or replace function dibs._take_level(
  queue_id integer, priority smallint, from_at timestamptz, from_id uuid, want integer, at timestamptz) returns dibs.ready[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tickets dibs.ready[];
begin
  with pick as materialized (
    select r.ctid as spot from dibs.ready as r
    where r.queue_id = _take_level.queue_id and r.priority = _take_level.priority and r.lane is null
      and (r.due_at, r.id) >= (_take_level.from_at, _take_level.from_id)
      and r.due_at <= _take_level.at and r.expire_at > _take_level.at
    order by r.due_at, r.id limit want
    for update skip locked
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r
  )
  select array_agg(g.r) into v_tickets from gone as g;
  return v_tickets;
end
$$;

comment on function dibs._take_level is 'Take up to `want` tickets of one priority, the earliest due first; null if there is none.';

create or replace function dibs._take_head(
  scan dibs.queue_scan, head dibs.head, want integer, claim dibs.claim_order, inout moved integer,
  out takings dibs.taking[], out taken integer, out first_at timestamptz, out first_id uuid, out low integer)
language plpgsql volatile
as $$
declare
  v_at timestamptz := head.due_at;
  v_id uuid := head.id;
  v_asked integer;
  v_tickets dibs.ready[];
  v_is_small boolean := not dibs._counts_bytes(scan.queue, want);
  v_taking dibs.taking;
  v_admitted record;
begin
  takings := '{}'::dibs.taking[];
  taken := 0;
  low := head.brought;
  while taken < want loop
    -- Below the floor there is nothing but what was brought back, unless this claim looks back there.
    v_asked := case when low > 0 and scan.back = 0 then least(want - taken, low) else want - taken end;
    v_tickets := dibs._take_level((scan.queue).id, head.priority, v_at, v_id, v_asked, claim.at);
    if v_tickets is null then
      if first_id is not null and v_is_small then
        first_at := coalesce(dibs._from_micros(dibs._head_us((scan.queue).id, head.priority, v_at, v_id, claim.at)), claim.at);
        first_id := dibs._nil_id();
      end if;
      exit;
    end if;
    v_at := v_tickets[1].due_at;
    v_id := v_tickets[1].id;
    -- What is put back because it is too large must not lie below the floor.
    if first_id is null or v_is_small then
      first_at := v_at;
      first_id := v_id;
    end if;
    v_taking := row(scan.queue, v_tickets, null, dibs._gate_needs(scan.gate), null, claim.at);
    if (scan.queue).has_job_limits then
      v_admitted := dibs._admit_plain(v_taking, head.priority, want - taken, moved);
      v_taking := v_admitted.takings[1];
      moved := v_admitted.moved;
    end if;
    takings := takings || v_taking;
    taken := taken + cardinality(v_taking.tickets);
    exit when not (scan.queue).has_job_limits or moved > 0 and dibs._is_enough(scan.queue, moved);
    if low > 0 then
      low := case when cardinality(v_tickets) < v_asked then 0 else greatest(0, low - cardinality(v_tickets)) end;
      if low = 0 and scan.back = 0 and (dibs._micros(v_at), v_id) < (head.floor_us, head.floor_id) then
        v_at := dibs._from_micros(head.floor_us);
        v_id := head.floor_id;
      end if;
    end if;
  end loop;
end
$$;

comment on function dibs._take_head is
'Take up to `want` tickets of one priority from its head on; to where the floor may rise (first_at, first_id), which is the first of them, or
what is left behind them; how many of those that were brought back are left (low); and how many tickets were moved to blocked on the way.';

create or replace function dibs._take_plain(
  inout scans dibs.queue_scan[], want integer, claim dibs.claim_order, out takings dibs.taking[], out taken integer)
language plpgsql volatile
as $$
declare
  v_top bigint := dibs._micros(claim.at) - dibs._settled_us();
  v_head dibs.head;
  v_scan dibs.queue_scan;
  v_step record;
  v_moved integer := 0;
  v_floor record;
begin
  takings := '{}'::dibs.taking[];
  taken := 0;
  for v_head in select h.* from dibs._find_heads(scans, claim.at) as h loop
    v_scan := scans[v_head.scan];
    v_step := dibs._take_head(v_scan, v_head, least(want - taken, v_scan.allowed), claim, v_moved);
    v_moved := v_step.moved;
    takings := takings || v_step.takings;
    -- From a queue whose turn it was not, the head is left: what is dead below it is not read again.
    v_floor := dibs._raised(v_head.floor_us, v_head.floor_id, dibs._micros(coalesce(v_step.first_at, v_head.due_at)),
      coalesce(v_step.first_id, dibs._nil_id()), v_top, v_step.low > 0 or v_step.first_id is not null
        and (v_step.taken = want - taken or v_moved >= dibs._most_blocked()));
    v_scan.next.due_us[v_head.level] := v_floor.us;
    v_scan.next.ids[v_head.level] := v_floor.id;
    v_scan.allowed := v_scan.allowed - v_step.taken;
    scans[v_head.scan] := v_scan;
    taken := taken + v_step.taken;
  end loop;
end
$$;

comment on function dibs._take_plain is
'Take up to `want` tickets without a group, and say how the scans stand after it.';
