-- What has no group, from the oldest end: by priority, then due time.

create or replace function dibs._find_heads(scans dibs.queue_scan[], at timestamptz)
returns table (scan integer, level integer, priority smallint, due_us bigint, id uuid, head_at timestamptz, head_id uuid)
language sql stable
begin atomic
  select s.ordinality::integer, l.n::integer, l.priority, l.due_us, l.id, r.due_at, r.id
  from unnest(scans) with ordinality as s
  cross join lateral unnest((s.floor).priorities, (s.floor).due_us, (s.floor).ids) with ordinality as l (priority, due_us, id, n)
  cross join lateral (
    select dibs._from_micros(l.due_us - s.back) as from_at, case when s.back = 0 then l.id else dibs._nil_id() end as from_id) as b
  cross join lateral (
    select r.due_at, r.id from dibs.ready as r
    where r.queue_id = (s.queue).id and r.priority = l.priority and r.group_key is null
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
  with gone as (
    delete from dibs.ready as r where r.ctid = any (array(
      select r.ctid from dibs.ready as r
      where r.queue_id = _take_level.queue_id and r.priority = _take_level.priority and r.group_key is null
        and (r.due_at, r.id) >= (_take_level.from_at, _take_level.from_id)
        and r.due_at <= _take_level.at and r.expire_at > _take_level.at
      order by r.due_at, r.id limit want
      for update skip locked))
    returning r, r.due_at, r.id
  )
  select array_agg(g.r order by g.due_at, g.id) into v_tickets from gone as g;
  return v_tickets;
end
$$;

comment on function dibs._take_level is 'Take up to `want` tickets of one priority, the earliest due first; null if there is none.';

create or replace function dibs._take_plain(
  inout scans dibs.queue_scan[], want integer, claim dibs.claim_order, out batches dibs.taken_batch[], out taken integer)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_top bigint := dibs._micros(claim.at) - dibs._commit_lag_us();
  v_head record;
  v_scan dibs.queue_scan;
  v_share integer;
  v_tickets dibs.ready[];
  v_from dibs.ready;
  v_first dibs.ready;
  v_batch dibs.taken_batch;
  v_got integer;
  v_admitted record;
  v_moved integer := 0;
  v_first_us bigint;
begin
  batches := '{}'::dibs.taken_batch[];
  taken := 0;
  for v_head in select h.* from dibs._find_heads(scans, claim.at) as h loop
    v_scan := scans[v_head.scan];
    v_share := least(want - taken, v_scan.allowed);
    v_first := null;
    v_got := 0;
    while v_share > 0 loop
      v_tickets := dibs._take_level((v_scan.queue).id, v_head.priority, v_head.head_at, v_head.head_id, v_share, claim.at);
      exit when v_tickets is null;
      v_from := v_tickets[1];
      -- What is put back because it is too large must not lie below the floor.
      if v_first.id is null or not dibs._counts_bytes(v_scan.queue, want) then
        v_first := v_from;
      end if;
      v_batch := row(v_scan.queue, v_tickets, null, (v_scan.reservation).units, null, claim.at);
      if (v_scan.queue).has_job_limits then
        v_admitted := dibs._admit_ungrouped(v_batch, v_head.priority, v_share, v_moved);
        v_batch := v_admitted.batch;
        v_moved := v_admitted.moved;
      end if;
      batches := batches || v_batch;
      v_got := v_got + cardinality(v_batch.tickets);
      exit when not (v_scan.queue).has_job_limits or v_moved > 0 and dibs._has_moved_enough(v_scan.queue, v_moved);
      v_head.head_at := v_from.due_at;
      v_head.head_id := v_from.id;
      v_share := v_share - cardinality(v_batch.tickets);
    end loop;
    -- From a queue whose turn it was not, the head is left: what is dead below it is not read again.
    v_first_us := dibs._micros(coalesce(v_first.due_at, v_head.head_at));
    if dibs._moves(v_head.due_us, v_head.id, v_first_us, coalesce(v_first.id, dibs._nil_id()), v_top,
        v_first.id is not null and (v_got = want - taken or v_moved >= dibs._max_tickets_moved())) then
      v_scan.next.due_us[v_head.level] := least(v_first_us, v_top);
      v_scan.next.ids[v_head.level] := case when v_first_us < v_top then coalesce(v_first.id, dibs._nil_id()) else dibs._nil_id() end;
    else
      v_scan.next.due_us[v_head.level] := v_head.due_us;
      v_scan.next.ids[v_head.level] := v_head.id;
    end if;
    v_scan.allowed := v_scan.allowed - v_got;
    scans[v_head.scan] := v_scan;
    taken := taken + v_got;
  end loop;
end
$$;

comment on function dibs._take_plain is
'Take up to `want` tickets without a group, and say how the scans stand after it.';
