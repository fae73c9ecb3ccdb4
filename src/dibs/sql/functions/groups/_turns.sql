-- Turns: what running and blocked jobs hold of a limited group, and how the count of them is put right.

create or replace function dibs._wrong_turns(of_queue integer, of_lane uuid)
returns table (id uuid, queue_id integer, lane uuid, turn smallint)
language sql stable
begin atomic
  select l.id, l.queue_id, l.lane, p.turn from dibs.lease as l
  cross join lateral (
    select case o.concurrency when 1 then 2 else 1 end::smallint as turn from dibs._policy_of(l.queue_id, l.lane) as o
    where o.concurrency is not null) as p
  where l.lane is not null and l.turn <> p.turn
    and of_queue in (l.queue_id, 0) and of_lane in (l.lane, dibs._nil_id());
end;

comment on function dibs._wrong_turns is
'The leases whose turn is not the one that the policy of their group asks for, and that turn; of one queue or all
(zero), of one lane or all (the nil id).';

create or replace function dibs._correct_turns(of_queue integer, of_lane uuid) returns void
language plpgsql volatile
as $$
begin
  -- A lease that stays locked is ending in another transaction. If that rolls back, repair_groups comes here again.
  with wrong as materialized (
    select l.id, w.turn from dibs._wrong_turns(of_queue, of_lane) as w
    cross join lateral (select l.id from dibs.lease as l where l.id = w.id for update skip locked) as l
  )
  update dibs.lease as l set turn = w.turn from wrong as w where l.id = w.id;
end
$$;

comment on function dibs._correct_turns is 'Give the running jobs of groups the turns that their policy asks for.';

create or replace function dibs._held_turns(of_queue integer)
returns table (queue_id integer, lane uuid, running integer)
language sql stable
begin atomic
  select abs(h.queue_id), h.lane, sum(h.units)::integer from (
    select l.queue_id, l.lane, 1 as units from dibs.lease as l where l.turn > 0
    union all select b.queue_id, b.lane, 1 from dibs.blocked as b where b.turn > 0
    union all select t.queue_id, t.lane, t.freed from dibs.group_pointer as t where t.freed > 0
  ) as h
  where of_queue in (abs(h.queue_id), 0) group by 1, 2;
end;

comment on function dibs._held_turns is
'How many turns of each group are taken, in one queue or all (zero): by jobs that run or are blocked, and by freed units
that no claim has merged yet.';

create or replace function dibs._find_wrong_gates(max integer) returns table (queue_id integer, lane uuid)
language sql stable
begin atomic
  select w.queue_id, w.lane from (
    select coalesce(g.queue_id, h.queue_id) as queue_id, coalesce(g.lane, h.lane) as lane
    from (select distinct on (g.lane) g.* from dibs.group_gate as g order by g.lane, g.n desc) as g
    full join dibs._held_turns(0) as h on h.lane = g.lane
    where coalesce(g.running, 0) <> coalesce(h.running, 0)
    union
    select t.queue_id, t.lane from dibs._wrong_turns(0, dibs._nil_id()) as t
  ) as w
  where exists (select from dibs._policy_of(w.queue_id, w.lane) as p where num_nonnulls(p.concurrency, p.rate) > 0)
  limit _find_wrong_gates.max;
end;

comment on function dibs._find_wrong_gates is
'Limited groups whose gate counts another number of turns than are taken, or whose running jobs have wrong turns. Every
transaction leaves both right, so one statement can tell without a lock.';

create or replace function dibs._repair_gates(at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_group record;
  v_repaired bigint := 0;
begin
  if not exists (select from dibs.queue as q where q.has_group_policy) then
    return 0;
  end if;
  for v_group in select w.queue_id, w.lane from dibs._find_wrong_gates(100) as w loop
    perform from dibs.group_lock as l where l.bucket = dibs._bucket_of(v_group.lane) for update skip locked;
    continue when not found;
    perform dibs._correct_turns(v_group.queue_id, v_group.lane);
    perform dibs._recount_gates(v_group.queue_id, v_group.lane, at);
    v_repaired := v_repaired + 1;
  end loop;
  return v_repaired;
end
$$;

comment on function dibs._repair_gates is
'Count the turns of groups again where they are wrong. A group whose lock a claim holds waits for the next repair.
Returns how many groups were wrong.';
