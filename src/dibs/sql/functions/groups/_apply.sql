-- Changes of a policy, applied to jobs that run and to jobs that wait.

create or replace function dibs._apply_group_policy(queue_id integer, of_group uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_variable
begin
  -- From here on no claim begins until the commit, so no lease is inserted with a hold by the old policy.
  perform dibs._stop_claims_or_warn();
  update dibs.queue as q set has_group_policy = exists (select from dibs.group_policy as p where p.queue_id = q.id)
  where q.id = queue_id;
  perform dibs._lock_groups(of_group);
  -- Let runs that are ending end: a lease that is locked keeps its wrong hold.
  perform dibs._try_lock_leases(array(select w.id from dibs._wrong_group_holds(queue_id, of_group) as w order by w.id));
  perform dibs._correct_group_holds(queue_id, of_group);
  perform dibs._recount_group_gates(queue_id, of_group, dibs.now());
end
$$;

comment on function dibs._apply_group_policy is
'Apply the policies that are set now to one group of a queue, or to all (the nil id): correct the holds of its running
jobs, then its gates, which count them. Wait for claims in flight first, and let none begin before the commit.';

create or replace function dibs._recount_group_gates(of_queue integer, of_group uuid, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- One statement, so that it sees each run that ends either as a lease or in a pointer's ended_runs, never as both.
  with old as (
    -- All gate rows, which keep the floors of groups that are stopped.
    delete from dibs.group_gate as g
    where g.queue_id = of_queue and of_group in (g.group_key, dibs._nil_id()) returning g.*
  ), ahead as (
    -- Wakeups, and pointers to due tickets, that lie ahead: they wait for a rate or for a job that has to run next, and
    -- the policy may ask for neither now.
    delete from dibs.group_pointer as t where t.ctid = any (array(
      select o.ctid from dibs.group_pointer as o
      where abs(o.queue_id) = of_queue and of_group in (o.group_key, dibs._nil_id())
        and o.look_at > at and coalesce(o.floor_at <= at, true)
      for update skip locked))
    returning t.*
  ), held as (
    select h.* from dibs._count_group_holds(of_queue) as h where of_group in (h.group_key, dibs._nil_id())
  ), used as (
    -- By the policy of now: tat only if the group has a rate, next_id only if it is strict.
    select c.group_key, coalesce(c.running, 0) as running, case when p.rate is not null then c.tat end as tat,
      case when p.concurrency = 1 then c.next_id end as next_id
    from (
      select coalesce(o.group_key, h.group_key) as group_key, h.running, o.tat, o.next_id
      from old as o full join held as h on h.group_key = o.group_key
    ) as c
    cross join lateral dibs._find_group_policy(of_queue, c.group_key) as p
    where p.is_limited
  ), gate as (
    insert into dibs.group_gate (group_key, queue_id, running, tat, next_id, floors)
    select u.group_key, of_queue, u.running, u.tat, u.next_id, '{}' from used as u
    where u.running > 0 or u.tat > at or u.next_id is not null
  )
  insert into dibs.group_pointer (
    queue_id, group_key, look_at, priority, floor_at, floor_id, cost, ended_runs, next_id, ring)
  select of_queue, o.group_key, at, f.priority, f.due_at, f.id, f.cost, 0, null, false
  from old as o cross join lateral unnest(o.floors) as f
  union all
  select a.queue_id, a.group_key, at, a.priority, a.floor_at, a.floor_id, a.cost, a.ended_runs, a.next_id, false
  from ahead as a
  union all
  -- More jobs may start now than before: a wakeup that notifies a worker, for each group.
  select of_queue, o.group_key, at, null, null, null, 1, 0, null, true from old as o;
end
$$;

comment on function dibs._recount_group_gates is
'Delete the gates of a group, or of all groups of a queue (the nil id), and insert them again with a fresh count of
their holds, by the policies that are set now. Let claims look at once: bring pointers that lie ahead to `at`, and
insert pointers for the floors that the gates kept. The caller has locked the groups.';
