-- The pointers that a claim puts back.

create or replace function dibs._reinsert_pointers(
  queue dibs.queue, rotation integer, candidates dibs.group_candidate[], counts integer[], exhausted integer[],
  want integer, taken integer, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  -- FORMULAS.md, "Which pointers move": the probability with which each candidate has to leave the front.
  v_pace constant double precision := least(1, taken / cardinality(candidates)::double precision);
  -- A claim that took too few jobs met groups whose tickets or lock another claim holds. It makes them due a moment
  -- later: otherwise its caller would claim again at once, and meet them again and again.
  v_pause constant interval := case when taken < want then interval '5 milliseconds' else interval '0' end;
begin
  with candidate as materialized (
    select c.group_key, c.look_at, c.ended_runs, c.next_id, l.floors, c.gate = 'busy' as is_busy,
      case when c.gate = 'busy' then v_pause
        when c.ordinality <> all (exhausted) or n.taken > 0 then interval '0'
        -- It was tried and gave none: its tickets are locked, or wait to be expired.
        when l.is_expired then interval '400 milliseconds' else v_pause end as pause,
      random() < case when n.taken > 0 then n.taken / s.share
        -- x of FORMULAS.md; 0 for a share of 1 or more.
        else v_pace * greatest(1 - s.share, 0) / greatest(1 - v_pace * s.share, 0.001) end as is_moved
    from unnest(candidates) with ordinality as c
    cross join lateral (select coalesce(counts[c.ordinality], 0) as taken) as n
    cross join lateral dibs._remaining_floors((queue).id, c.group_key, c.floors, at) as l
    cross join lateral (select coalesce((c.policy).weight, 1) / c.floors[1].cost as share) as s
    -- The pointers that this claim has deleted. _save_group_gates inserts those of groups that it has locked.
    where c.has_pointers and c.gate <> 'locked' and (l.floors is not null or c.gate = 'busy')
    order by c.ordinality
  ), wakeup as (
    -- This claim could not change the gate of a busy group: repeat what its pointers said about it. Without a due
    -- pointer to a ticket, insert a wakeup in any case.
    insert into dibs.group_pointer (queue_id, group_key, look_at, ended_runs, next_id)
    select rotation, c.group_key, at + v_pause, c.ended_runs, c.next_id from candidate as c
    where c.is_busy and (c.ended_runs > 0 or c.next_id is not null
      or not exists (select from unnest(c.floors) as f where f.due_at <= at))
  )
  insert into dibs.group_pointer (queue_id, group_key, look_at, priority, floor_at, floor_id, cost)
  select rotation, c.group_key, case when f.due_at > at then f.due_at
      -- The end of the rotation.
      when c.is_moved or c.pause > interval '0' then at + c.pause
      -- The front: just behind its old place, where the dead row is.
      else c.look_at + interval '1 microsecond' end,
    f.priority, f.due_at, f.id, f.cost
  from candidate as c cross join lateral unnest(c.floors) as f;
  if (queue).has_group_policy then
    perform dibs._save_group_gates(queue, rotation, candidates, counts, at);
  end if;
end
$$;

comment on function dibs._reinsert_pointers is
'Insert pointers to the tickets that a claim has left, after it took `taken` of the `want` jobs. The pointers of a group
go to the end of the rotation (`at`), or to the front if the group has not had its share. Save the gates, too. `counts`
says how many tickets each candidate gave, by its number; `exhausted` are the numbers of those that were tried and gave
none.';
