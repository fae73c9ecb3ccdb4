-- Pointers from transactions that insert tickets, end runs, or end the wait of a job.

create or replace function dibs._add_pointers(ids uuid[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- Due now at the earliest: claims may have stopped looking at earlier places of the rotation.
  insert into dibs.group_pointer (queue_id, group_key, priority, look_at, floor_at, cost)
  select r.queue_id, r.group_key, r.priority, greatest(r.due_at, at), r.due_at, avg(coalesce(r.cost, 1))
  from unnest(ids) as k (id)
  cross join lateral (
    select r.queue_id, r.group_key, r.priority, r.due_at, r.cost from dibs.ready as r
    where r.id = k.id and r.group_key is not null offset 0) as r
  group by r.queue_id, r.group_key, r.priority, r.due_at;
end
$$;

comment on function dibs._add_pointers is
'Insert pointers to tickets that this transaction has inserted, one for those of a group with the same priority and due
time. Jobs without a group or without a ticket are left out.';

create or replace function dibs._end_group_runs(
  group_keys uuid[], group_holds dibs.group_hold[], queues integer[], waiting uuid[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  insert into dibs.group_pointer (queue_id, group_key, look_at, ended_runs, next_id, ring)
  select e.queue_id, e.group_key, at, e.ended_runs, e.next_id, q.ring
  from (
    -- One wakeup for each group, and in a strict group a separate one for each job that waits again.
    select u.queue_id, u.group_key, case when u.group_hold = 'exclusive' then u.waiting_id end as next_id,
      count(*)::integer as ended_runs
    from unnest(group_keys, group_holds, queues, waiting) as u (group_key, group_hold, queue_id, waiting_id)
    where u.group_hold > 'none' group by u.queue_id, u.group_key, next_id
  ) as e
  join dibs.queue as q on q.id = e.queue_id;
end
$$;

comment on function dibs._end_group_runs is
'Insert wakeups for the groups whose runs ended; they give the holds back (`ended_runs`). The first four arguments are
parallel arrays, with an item for each run. `waiting` has the id of a job that waits again, otherwise null: a strict
group has to go on with such a job, and gets a separate wakeup for it (`next_id`). A null array stands for no such
jobs. The wakeups notify workers unless the queue''s policy says otherwise (`queue.ring`).';

create or replace function dibs._wake_groups(
  group_keys uuid[], queues integer[], group_holds dibs.group_hold[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- Give holds back even without a policy: if another transaction sets one before this one commits, it still sees
  -- these tickets, and counts their holds.
  insert into dibs.group_pointer (queue_id, group_key, look_at, ended_runs, ring)
  select w.queue_id, w.group_key, at, w.ended_runs, q.ring
  from (
    select u.queue_id, u.group_key, count(*) filter (where u.group_hold > 'none')::integer as ended_runs
    from unnest(group_keys, queues, group_holds) as u (group_key, queue_id, group_hold) group by 1, 2
  ) as w
  join dibs.queue as q on q.id = w.queue_id
  where w.ended_runs > 0
    -- One of these tickets may be the job that has to run next: in a pointer that no claim has merged yet,
    or exists (select from dibs.group_pointer as t where t.group_key = w.group_key and t.next_id is not null)
    -- or in the gate of a strict group.
    or q.has_group_policy
      and exists (select from dibs._find_group_policy(w.queue_id, w.group_key) as p where p.concurrency = 1);
end
$$;

comment on function dibs._wake_groups is
'Insert a wakeup for each group that lost waiting tickets: if they had holds, which it gives back (`ended_runs`), or if
the group may have waited for one of them, because it is strict or a pointer has a next_id. The first three arguments
are parallel arrays, with an item for each ticket of a group.';
