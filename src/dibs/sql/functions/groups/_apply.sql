-- How groups follow their policy.

create or replace function dibs._apply_policy(queue_id integer, of_lane uuid) returns void
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_running uuid[];
begin
  perform dibs._wait_for_claims();
  update dibs.queue as q set has_group_policy = exists (select from dibs.group_policy as p where p.queue_id = q.id)
  where q.id = queue_id;
  perform from dibs.group_lock as l where of_lane = dibs._nil_id() or l.bucket = dibs._bucket_of(of_lane) order by l.bucket for update;
  -- What runs already counts; one that is ending at this moment is let go.
  v_running := array(
    select l.id from dibs.lease as l
    where l.queue_id = queue_id and l.turn = 0 and l.lane is not null and (l.lane = of_lane or of_lane = dibs._nil_id()) order by l.id);
  perform dibs._wait_for_leases(v_running);
  with running as materialized (
    select l.id, p.concurrency from dibs.lease as l cross join lateral dibs._policy_of(queue_id, l.lane) as p
    where l.id = any (v_running) and l.turn = 0 and p.concurrency is not null
    order by l.id for update of l skip locked
  )
  update dibs.lease as l set turn = case r.concurrency when 1 then 2 else 1 end from running as r where l.id = r.id;
  perform dibs._recount_gates(queue_id, of_lane, dibs.now());
end
$$;

comment on function dibs._apply_policy is
'Let the groups of a queue, or the one of this lane, follow what was set. It waits for claims in flight.';

create or replace function dibs._recount_gates(of_queue integer, of_lane uuid, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- One statement, so that it sees each run that ends either as a lease or as a unit freed.
  with old as (
    delete from dibs.group_gate as g where g.queue_id = of_queue and (g.lane = of_lane or of_lane = dibs._nil_id()) returning g.*
  ), held as (
    select h.lane, sum(h.units)::integer as running from (
      select l.lane, 1 as units from dibs.lease as l where l.queue_id = of_queue and l.turn > 0
      union all select b.lane, 1 from dibs.blocked as b where b.queue_id = of_queue and b.turn > 0
      union all select t.lane, t.freed from dibs.group_pointer as t where abs(t.queue_id) = of_queue and t.freed > 0
    ) as h
    where h.lane = of_lane or of_lane = dibs._nil_id() group by h.lane
  ), gate as (
    insert into dibs.group_gate (lane, queue_id, running, tat, next, floors)
    select p.lane, of_queue, coalesce(p.running, 0), p.tat, p.next, '{}'
    from (
      select coalesce(o.lane, h.lane) as lane, h.running, o.tat, o.next from old as o full join held as h on h.lane = o.lane
    ) as p
    cross join lateral dibs._policy_of(of_queue, p.lane) as l
    where num_nonnulls(l.concurrency, l.rate) > 0 and (p.running > 0 or p.tat > at or p.next is not null)
    returning group_gate.lane
  )
  insert into dibs.group_pointer (queue_id, lane, place, level, floor_at, floor_id, cost, ring)
  select of_queue, o.lane, at, f.level, f.due_at, f.id, f.cost, false from old as o cross join lateral unnest(o.floors) as f
  union all
  select of_queue, o.lane, at, null, null, null, 1, true from old as o;
end
$$;

comment on function dibs._recount_gates is 'Count what runs of limited groups, and look at all that wait; their locks must be held.';
