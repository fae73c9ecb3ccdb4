-- Pointers from those who insert tickets, and from those who end runs.

create or replace function dibs._add_pointers(ids uuid[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  insert into dibs.group_pointer (queue_id, lane, level, place, floor_at, cost)
  -- Not below the present, where the floors of claims are.
  select r.queue_id, r.lane, r.priority, greatest(r.due_at, at), r.due_at, avg(coalesce(r.cost, 1))
  from unnest(ids) as k (id)
  cross join lateral (
    select r.queue_id, r.lane, r.priority, r.due_at, r.cost from dibs.ready as r
    where r.id = k.id and r.lane is not null offset 0) as r
  group by r.queue_id, r.lane, r.priority, r.due_at;
end
$$;

comment on function dibs._add_pointers is 'Point at tickets that this transaction has inserted, those of them that have a group.';

create or replace function dibs._free_units(
  lanes uuid[], turns smallint[], queues integer[], waiting uuid[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  insert into dibs.group_pointer (queue_id, lane, place, freed, next, ring)
  select f.queue_id, f.lane, at, f.units, f.next, q.ring
  from (
    select u.queue_id, u.lane, case when u.turn = 2 then u.waits end as next, count(*)::integer as units
    from unnest(lanes, turns, queues, waiting) as u (lane, turn, queue_id, waits)
    where u.turn > 0 group by 1, 2, 3
  ) as f
  join dibs.queue as q on q.id = f.queue_id;
end
$$;

comment on function dibs._free_units is
'Say that runs of limited groups ended (those with a turn). Where the order is strict and the job waits again, its id is in
`waiting`, and the group goes on with it.';

create or replace function dibs._wake_groups(lanes uuid[], queues integer[], turns smallint[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- A group in strict order may have been waiting for the job that ended.
  insert into dibs.group_pointer (queue_id, lane, place, freed, ring)
  select a.queue_id, a.lane, at, count(*) filter (where a.turn > 0), q.ring
  from unnest(lanes, queues, turns) as a (lane, queue_id, turn)
  join dibs.queue as q on q.id = a.queue_id and q.has_group_policy
  group by a.queue_id, a.lane, q.ring;
end
$$;

comment on function dibs._wake_groups is
'Let groups go on whose job was cancelled or has expired after it had run; and free the units that such jobs held.';
