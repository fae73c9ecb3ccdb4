-- Pointers that a claim puts back: to groups without limits, and to groups whose lock another claim has.

create or replace function dibs._put_pointers(
  queue dibs.queue, number integer, hands dibs.group_hand[], taken integer[], shut integer[], want integer, missing integer, at timestamptz)
returns void
language plpgsql volatile
as $$
declare
  v_moved constant double precision := least(1, (want - missing) / cardinality(hands)::double precision);
  -- A claimer that got less than it wanted comes again when this is over.
  v_patience constant interval := case when missing > 0 then interval '5 milliseconds' else interval '0' end;
begin
  with hand as materialized (
    select h.group_key, h.place, h.freed, (h.next).id as next, l.floors, h.room is not null as is_busy,
      case when h.room is not null then v_patience
        when h.ordinality <> all (shut) or taken[h.ordinality] > 0 then interval '0'
        when l.is_expired then interval '400 milliseconds' else v_patience end as rest,
      -- A group goes to the end when it has had its weight; chance makes that right on average, without a memory.
      random() >= case when taken[h.ordinality] > 0 then taken[h.ordinality] / s.share
        else v_moved * greatest(1 - s.share, 0) / greatest(1 - v_moved * s.share, 0.001) end as stays
    from unnest(hands) with ordinality as h
    cross join lateral dibs._left_over((queue).id, h.group_key, h.floors, at) as l
    cross join lateral (select coalesce((h.policy).weight, 1) / h.floors[1].cost as share) as s
    where h.is_own and h.running is null and (l.floors is not null or h.room is not null)
    order by h.ordinality
  ), busy as (
    -- Also a pointer that is only a wakeup: no claim has looked at the gate yet.
    insert into dibs.group_pointer (queue_id, group_key, place, freed, next)
    select number, h.group_key, at + v_patience, h.freed, h.next from hand as h
    where h.is_busy and (h.freed > 0 or h.next is not null
      or not exists (select from unnest(h.floors) as f where f.due_at <= at))
  )
  insert into dibs.group_pointer (queue_id, group_key, place, level, floor_at, floor_id, cost)
  select number, h.group_key, case when f.due_at > at then f.due_at
      -- Not quite where it was: there lies the dead row.
      when h.stays and h.rest = interval '0' then h.place + interval '1 microsecond' else at + h.rest end,
    f.level, f.due_at, f.id, f.cost
  from hand as h cross join lateral unnest(h.floors) as f;
  if (queue).has_group_policy then
    perform dibs._save_group_gates(queue, number, hands, taken, at);
  end if;
end
$$;

comment on function dibs._put_pointers is
'Look again at the groups a claim has served, and put a pointer back where tickets are left: at the end, in front if the group is
not yet through with its turn, or a little later if others hold its tickets or its gate.';
