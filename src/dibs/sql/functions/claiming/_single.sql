-- A claim of one plain queue: without groups and limits, from its oldest end. It takes what _take_oldest would, in the same order, and
-- carries less: no scans of several queues, and no look at the heads of priorities whose turn does not come.

create or replace function dibs._id_range(tickets dibs.ready[]) returns uuid[]
language plpgsql immutable
as $$
declare
  v_ids uuid[];
begin
  if cardinality(tickets) = 1 then
    return array[tickets[1].id, tickets[1].id];
  end if;
  v_ids := array(select t.id from unnest(tickets) as t order by t.id);
  return array[v_ids[1], v_ids[cardinality(v_ids)]];
end
$$;

comment on function dibs._id_range is 'The lowest and the highest id of tickets.';

create or replace function dibs._head_us(queue_id integer, priority smallint, from_at timestamptz, from_id uuid, at timestamptz) returns bigint
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return (
    select dibs._micros(r.due_at) from dibs.ready as r
    where r.queue_id = _head_us.queue_id and r.priority = _head_us.priority and r.lane is null
      and (r.due_at, r.id) >= (_head_us.from_at, _head_us.from_id) and r.due_at <= _head_us.at
    order by r.due_at, r.id limit 1);
end
$$;

comment on function dibs._head_us is
'When the first ticket of one priority was due, in microseconds, whether it can be taken or not; null if there is none.';

create or replace function dibs._take_single(queue dibs.queue, want integer, claim dibs.claim_order) returns dibs.ready[]
language plpgsql volatile
as $$
declare
  v_began bigint := dibs._micros(clock_timestamp());
  v_top bigint := dibs._micros(claim.at) - dibs._settled_us();
  v_floor dibs.floor := dibs._read_floor('floor', queue.id, dibs._priorities(queue), v_top);
  v_back bigint := dibs._look_back('floor', queue.id, v_floor, v_began);
  v_next dibs.floor := v_floor;
  v_taken dibs.ready[] := '{}'::dibs.ready[];
  v_tickets dibs.ready[];
  v_first dibs.ready;
  v_from_at timestamptz;
  v_from_id uuid;
  v_raised record;
begin
  for n in 1 .. cardinality(v_floor.priorities) loop
    v_from_at := dibs._from_micros(v_floor.due_us[n] - v_back);
    v_from_id := case when v_back = 0 then v_floor.ids[n] else dibs._nil_id() end;
    v_tickets := dibs._take_level(queue.id, v_floor.priorities[n], v_from_at, v_from_id, want, claim.at);
    v_first := v_tickets[1];
    if v_tickets is null then
      -- What is there anyway is locked or about to expire, and keeps the floor down.
      v_raised := dibs._raised(v_floor.due_us[n], v_floor.ids[n],
        coalesce(dibs._head_us(queue.id, v_floor.priorities[n], v_from_at, v_from_id, claim.at), v_top), dibs._nil_id(), v_top, false);
    else
      v_raised := dibs._raised(v_floor.due_us[n], v_floor.ids[n], dibs._micros(v_first.due_at), v_first.id, v_top,
        cardinality(v_tickets) = want);
      v_taken := v_taken || v_tickets;
      want := want - cardinality(v_tickets);
    end if;
    v_next.due_us[n] := v_raised.us;
    v_next.ids[n] := v_raised.id;
    exit when want = 0;
  end loop;
  if want = 0 and cardinality(v_taken) = 1 then
    v_next.quick_until := v_began + dibs._quick_us();
  end if;
  perform dibs._write_floor('floor', queue.id, v_next, v_floor, v_back, dibs._micros(clock_timestamp()) - v_began);
  return v_taken;
end
$$;

comment on function dibs._take_single is
'Take up to `want` tickets of a plain queue: by priority, then due time. The floors of priorities it does not come to stay.';
