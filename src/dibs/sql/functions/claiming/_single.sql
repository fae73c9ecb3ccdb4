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

create or replace function dibs._take_single(queue dibs.queue, told dibs.floor, want integer, claim dibs.claim_order)
returns dibs.ready[]
language plpgsql volatile
as $$
declare
  v_began constant bigint := dibs._micros(clock_timestamp());
  v_top constant bigint := dibs._micros(claim.at) - dibs._commit_lag_us();
  v_priorities constant smallint[] := dibs._priorities(queue);
  v_floor constant dibs.floor := dibs._read_floor('floor', queue.id, told, v_priorities, v_top);
  v_back constant bigint := dibs._look_back('floor', queue.id, v_floor, v_began);
  v_next dibs.floor := v_floor;
  v_taken dibs.ready[] := '{}'::dibs.ready[];
  v_tickets dibs.ready[];
  v_from_at timestamptz;
  v_from_id uuid;
  v_first bigint;
  v_first_id uuid;
  v_kept text;
begin
  for n in 1 .. cardinality(v_priorities) loop
    v_from_at := dibs._from_micros(v_floor.due_us[n] - v_back);
    v_from_id := case when v_back = 0 then v_floor.ids[n] else dibs._nil_id() end;
    v_tickets := dibs._take_level(queue.id, v_priorities[n], v_from_at, v_from_id, want, claim.at);
    if v_tickets is null then
      -- What is there anyway is locked or about to expire, and keeps the floor down.
      v_first := coalesce((
        select dibs._micros(r.due_at) from dibs.ready as r
        where r.queue_id = queue.id and r.priority = v_priorities[n] and r.group_key is null
          and (r.due_at, r.id) >= (v_from_at, v_from_id) and r.due_at <= claim.at
        order by r.due_at, r.id limit 1), v_top);
      v_first_id := dibs._nil_id();
    else
      v_first := dibs._micros(v_tickets[1].due_at);
      v_first_id := v_tickets[1].id;
      v_taken := v_taken || v_tickets;
      want := want - cardinality(v_tickets);
    end if;
    if dibs._moves(v_floor.due_us[n], v_floor.ids[n], v_first, v_first_id, v_top, want = 0) then
      v_next.due_us[n] := least(v_first, v_top);
      v_next.ids[n] := case when v_first < v_top then v_first_id else dibs._nil_id() end;
    end if;
    exit when want = 0;
  end loop;
  if want = 0 and cardinality(v_taken) = 1 then
    v_next.quick_until := v_began + dibs._floor_reuse_us();
  end if;
  v_kept := dibs._write_floor('floor', queue.id, v_next, v_floor, v_back, dibs._micros(clock_timestamp()) - v_began);
  return v_taken;
end
$$;

comment on function dibs._take_single is
'Take up to `want` tickets of a plain queue: by priority, then due time. The floors of priorities it does not come to stay.';
