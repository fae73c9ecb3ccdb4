-- How groups follow their policy.

create or replace function dibs._apply_policy(queue_id integer, of_group uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_variable
begin
  perform dibs._wait_for_claims();
  update dibs.queue as q set has_group_policy = exists (select from dibs.group_policy as p where p.queue_id = q.id)
  where q.id = queue_id;
  perform dibs._lock_groups(of_group);
  perform dibs._wait_for_leases(array(select w.id from dibs._wrong_group_holds(queue_id, of_group) as w order by w.id));
  perform dibs._correct_group_holds(queue_id, of_group);
  perform dibs._recount_gates(queue_id, of_group, dibs.now());
end
$$;

comment on function dibs._apply_policy is
'Let the groups of a queue, or the one of this group_key, follow what was set. It waits for claims in flight.';

create or replace function dibs._recount_gates(of_queue integer, of_group uuid, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- One statement, so that it sees each run that ends either as a lease or as a unit freed.
  with old as (
    delete from dibs.group_gate as g where g.queue_id = of_queue and of_group in (g.group_key, dibs._nil_id()) returning g.*
  ), ahead as (
    -- A rate that has changed put these off.
    delete from dibs.group_pointer as t where t.ctid = any (array(
      select o.ctid from dibs.group_pointer as o
      where abs(o.queue_id) = of_queue and of_group in (o.group_key, dibs._nil_id())
        and o.place > at and coalesce(o.floor_at <= at, true)
      for update skip locked))
    returning t.*
  ), held as (
    select h.* from dibs._count_group_holds(of_queue) as h where of_group in (h.group_key, dibs._nil_id())
  ), gate as (
    insert into dibs.group_gate (group_key, queue_id, running, tat, next, floors)
    select p.group_key, of_queue, p.running, p.tat, p.next, '{}'
    from (
      select g.group_key, coalesce(g.running, 0) as running, case when l.rate is not null then g.tat end as tat,
        case when l.concurrency = 1 then g.next end as next
      from (
        select coalesce(o.group_key, h.group_key) as group_key, h.running, o.tat, o.next
        from old as o full join held as h on h.group_key = o.group_key
      ) as g
      cross join lateral dibs._policy_of(of_queue, g.group_key) as l where num_nonnulls(l.concurrency, l.rate) > 0
    ) as p
    where p.running > 0 or p.tat > at or p.next is not null
  )
  insert into dibs.group_pointer (queue_id, group_key, place, level, floor_at, floor_id, cost, freed, next, ring)
  select of_queue, o.group_key, at, f.level, f.due_at, f.id, f.cost, 0, null, false
  from old as o cross join lateral unnest(o.floors) as f
  union all
  select a.queue_id, a.group_key, at, a.level, a.floor_at, a.floor_id, a.cost, a.freed, a.next, false from ahead as a
  union all
  -- What is left may be more than before: wake a worker for each group.
  select of_queue, o.group_key, at, null, null, null, 1, 0, null, true from old as o;
end
$$;

comment on function dibs._recount_gates is
'Count the turns of limited groups that are taken, and point at all their jobs that wait. The groups'' locks must be held.';
