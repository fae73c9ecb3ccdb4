-- Pointers from those who insert tickets, and from those who end runs.

create or replace function dibs._add_pointers(ids uuid[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  insert into dibs.group_pointer (queue_id, group_key, level, place, floor_at, cost)
  -- Not below the present, where the floors of claims are.
  select r.queue_id, r.group_key, r.priority, greatest(r.due_at, at), r.due_at, avg(coalesce(r.cost, 1))
  from unnest(ids) as k (id)
  cross join lateral (
    select r.queue_id, r.group_key, r.priority, r.due_at, r.cost from dibs.ready as r
    where r.id = k.id and r.group_key is not null offset 0) as r
  group by r.queue_id, r.group_key, r.priority, r.due_at;
end
$$;

comment on function dibs._add_pointers is 'Point at tickets that this transaction has inserted, those of them that have a group.';

create or replace function dibs._end_group_runs(
  group_keys uuid[], group_holds dibs.group_hold[], queues integer[], waiting uuid[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  insert into dibs.group_pointer (queue_id, group_key, place, freed, next, ring)
  select f.queue_id, f.group_key, at, f.units, f.next, q.ring
  from (
    select u.queue_id, u.group_key, case when u.group_hold = 'exclusive' then u.waits end as next, count(*)::integer as units
    from unnest(group_keys, group_holds, queues, waiting) as u (group_key, group_hold, queue_id, waits)
    where u.group_hold > 'none' group by 1, 2, 3
  ) as f
  join dibs.queue as q on q.id = f.queue_id;
end
$$;

comment on function dibs._end_group_runs is
'Say that runs of limited groups ended (those with a turn). Where the order is strict and the job waits again, its id is in
`waiting`, and the group goes on with it.';

create or replace function dibs._wake_groups(group_keys uuid[], queues integer[], group_holds dibs.group_hold[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- A freed unit is noted whatever the policy is now: if another is set before we commit, that one counts our tickets.
  insert into dibs.group_pointer (queue_id, group_key, place, freed, ring)
  select a.queue_id, a.group_key, at, a.units, q.ring
  from (
    select u.queue_id, u.group_key, count(*) filter (where u.group_hold > 'none')::integer as units
    from unnest(group_keys, queues, group_holds) as u (group_key, queue_id, group_hold) group by 1, 2
  ) as a
  join dibs.queue as q on q.id = a.queue_id
  -- A pointer may name the job that a group goes on with once its order is strict again.
  where a.units > 0 or exists (select from dibs.group_pointer as t where t.group_key = a.group_key and t.next is not null)
    or q.has_group_policy and exists (select from dibs._policy_of(a.queue_id, a.group_key) as p where p.concurrency = 1);
end
$$;

comment on function dibs._wake_groups is
'Free the units that tickets held which waited and are gone, and let groups in strict order go on: they may have waited for one of them.';
