-- Holds: each job of a limited group takes one while it runs or is blocked. A wrong gate is counted again.

create or replace function dibs._wrong_group_holds(of_queue integer, of_group uuid)
returns table (id uuid, queue_id integer, group_key uuid, group_hold dibs.group_hold)
language sql stable
begin atomic
  select l.id, l.queue_id, l.group_key, p.group_hold from dibs.lease as l
  cross join lateral dibs._find_group_policy(l.queue_id, l.group_key) as p
  where l.group_key is not null and p.concurrency is not null and l.group_hold is distinct from p.group_hold
    and of_queue in (l.queue_id, 0) and of_group in (l.group_key, dibs._nil_id());
end;

comment on function dibs._wrong_group_holds is
'Return the leases that have another hold than the policy of their group asks for, with the hold they need: of one
queue or all (0), of one group or all (the nil id). Leases of groups without a concurrency are right with any hold.';

create or replace function dibs._correct_group_holds(of_queue integer, of_group uuid) returns void
language plpgsql volatile
as $$
begin
  -- A lease that stays locked is ending in another transaction. If that rolls back, repair_groups corrects it later.
  with wrong as materialized (
    select l.id, w.group_hold from dibs._wrong_group_holds(of_queue, of_group) as w
    cross join lateral (select l.id from dibs.lease as l where l.id = w.id for update skip locked) as l
  )
  update dibs.lease as l set group_hold = w.group_hold from wrong as w where l.id = w.id;
end
$$;

comment on function dibs._correct_group_holds is
'Set the holds of running jobs to those that the policies of their groups ask for.';

create or replace function dibs._count_group_holds(of_queue integer)
returns table (queue_id integer, group_key uuid, running integer)
language sql stable
begin atomic
  select abs(h.queue_id), h.group_key, sum(h.holds)::integer from (
    select l.queue_id, l.group_key, 1 as holds from dibs.lease as l where l.group_hold > 'none'
    union all select b.queue_id, b.group_key, 1 from dibs.blocked as b where b.group_hold > 'none'
    union all select t.queue_id, t.group_key, t.ended_runs from dibs.group_pointer as t where t.ended_runs > 0
  ) as h
  where of_queue in (abs(h.queue_id), 0) group by 1, 2;
end;

comment on function dibs._count_group_holds is
'Return the number of holds of each group, in one queue or all (0): by leases, by blocked tickets, and by ended runs
whose pointers no claim has merged yet. Groups without holds are left out.';

create or replace function dibs._repair_group_gates(at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_wrong record;
  v_repaired bigint := 0;
begin
  if not exists (select from dibs.queue as q where q.has_group_policy) then
    return 0;
  end if;
  for v_wrong in
    -- Groups whose newest gate row has another count, and groups whose running jobs have wrong holds. To find them no
    -- lock is needed: one snapshot sees the count together with the holds that it counts.
    select w.queue_id, w.group_key
    from (
      select coalesce(g.queue_id, h.queue_id) as queue_id, coalesce(g.group_key, h.group_key) as group_key
      from (select distinct on (g.group_key) g.* from dibs.group_gate as g order by g.group_key, g.n desc) as g
      full join dibs._count_group_holds(0) as h on h.group_key = g.group_key
      where coalesce(g.running, 0) <> coalesce(h.running, 0)
      union
      select t.queue_id, t.group_key from dibs._wrong_group_holds(0, dibs._nil_id()) as t
    ) as w
    where exists (select from dibs._find_group_policy(w.queue_id, w.group_key) as p where p.is_limited)
    limit 100
  loop
    perform from dibs.group_lock as l where l.bucket = dibs._group_bucket(v_wrong.group_key) for update skip locked;
    continue when not found;
    perform dibs._correct_group_holds(v_wrong.queue_id, v_wrong.group_key);
    perform dibs._recount_group_gates(v_wrong.queue_id, v_wrong.group_key, at);
    v_repaired := v_repaired + 1;
  end loop;
  return v_repaired;
end
$$;

comment on function dibs._repair_group_gates is
'Correct the gates and the holds of up to 100 limited groups where they are wrong, and return the number of groups
that were counted again. A group that is locked waits for the next repair.';
