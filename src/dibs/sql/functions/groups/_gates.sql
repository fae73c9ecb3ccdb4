-- Limited groups: what a claim may take of them, and what it leaves.

create or replace function dibs._lock_group_gates(queue dibs.queue, hands dibs.group_hand[], at timestamptz) returns dibs.group_hand[]
language plpgsql volatile
as $$
declare
  v_locked integer[];
begin
  select array_agg(l.bucket) into v_locked
  from (
    select distinct dibs._bucket_of(h.group_key) as bucket from unnest(hands) as h
    cross join lateral dibs._policy_of((queue).id, h.group_key) as p
    where h.is_own and num_nonnulls(p.concurrency, p.rate) > 0
  ) as b
  cross join lateral (select l.bucket from dibs.group_lock as l where l.bucket = b.bucket for update skip locked) as l;
  if v_locked is not null then
    -- Read again: the claims that held these locks before us have older clocks.
    at := dibs.now();
  end if;

  with hand as materialized (
    select h.*, p as p, coalesce(num_nonnulls(p.concurrency, p.rate) > 0, false) as is_limited,
      h.is_own and coalesce(dibs._bucket_of(h.group_key) = any (v_locked), false) as is_locked
    from unnest(hands) with ordinality as h
    left join lateral dibs._policy_of((queue).id, h.group_key) as p on true
  ), gate as materialized (
    select h.*, g.spot, case when (h.p).concurrency = 1 then least((h.next).id, g.next) end as next_id,
      -- A rate owes a whole burst at most. More was owed at a lower rate, or by a clock that was ahead.
      case when (h.p).rate is not null and g.tat is not null then least(g.tat, at + dibs._token_time((h.p).rate,
        coalesce((h.p).burst, dibs._default_burst((h.p).rate)))) end as gate_tat,
      greatest(coalesce(g.running, 0) - h.freed, 0) as now_running,
      case when cardinality(g.floors) > 0 or o.floors is not null then dibs._merge_floors(h.floors || g.floors || o.floors)
        else h.floors end as all_floors
    from hand as h
    left join lateral (
      select g.ctid as spot, g.* from dibs.group_gate as g where g.group_key = h.group_key order by g.n desc limit 1) as g
      on h.is_limited and h.is_locked
    -- Another claimer may have taken the pointer to an earlier ticket before this one locked the group.
    left join lateral (
      select array_agg(row(t.level, t.floor_at, t.floor_id, t.cost)::dibs.group_floor) as floors from dibs.group_pointer as t
      where h.is_locked and (h.p).concurrency = 1 and t.group_key = h.group_key and t.level is not null and t.floor_at <= at) as o
      on true
  ), gone as (
    delete from dibs.group_gate as g using gate as o where g.ctid = o.spot
  )
  select array_agg(case
    when not g.is_limited then
      row(g.group_key, g.n, g.place, g.is_own, g.floors, 0, null, g.p, null, null, null)::dibs.group_hand
    when not g.is_locked then
      row(g.group_key, g.n, g.place, g.is_own, g.floors, g.freed, g.next, g.p, null, null, 0)::dibs.group_hand
    else row(g.group_key, g.n, g.place, true, g.all_floors, 0, r.next, g.p, g.now_running, g.gate_tat,
      least((g.p).concurrency - least(g.now_running, (g.p).concurrency),
        dibs._tokens((g.p).rate, coalesce((g.p).burst, dibs._default_burst((g.p).rate)), g.gate_tat, at),
        case when (r.next).due_at > at then 0 when (r.next).id is not null then 1 end))::dibs.group_hand
    end order by g.ordinality)
  into hands
  from gate as g
  left join lateral (
    select row(r.priority, r.due_at, r.id, coalesce(r.cost, 1))::dibs.group_floor as next from dibs.ready as r
    where r.id = g.next_id and r.group_key = g.group_key and r.expire_at > at offset 0) as r on g.is_limited and g.is_locked;
  return hands;
end
$$;

comment on function dibs._lock_group_gates is
'Add to hands what the policy of their groups says, and take the gates of those that are limited. One whose lock another claimer
has gets no room, and its count of running jobs is unknown.';

create or replace function dibs._save_group_gates(
  queue dibs.queue, number integer, hands dibs.group_hand[], taken integer[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  with hand as materialized (
    select h.group_key, h.policy, l.floors, case when taken[h.ordinality] = 0 then h.next end as next,
      h.running + case when (h.policy).concurrency is not null then taken[h.ordinality] else 0 end as running,
      case when (h.policy).rate is not null and taken[h.ordinality] > 0
        then greatest(h.tat, at) + dibs._token_time((h.policy).rate, taken[h.ordinality]) else h.tat end as tat,
      coalesce((h.policy).burst, dibs._default_burst((h.policy).rate)) as burst
    from unnest(hands) with ordinality as h
    cross join lateral dibs._left_over((queue).id, h.group_key, h.floors, at) as l
    where h.is_own and h.running is not null
    order by h.ordinality
  ), seen as materialized (
    select h.*, coalesce(h.running >= (h.policy).concurrency or (h.next).due_at > at, false) as is_stopped,
      case when dibs._tokens((h.policy).rate, h.burst, h.tat, at) > 0 then at
        else h.tat - dibs._token_time((h.policy).rate, h.burst - 1) end as place
    from hand as h
  ), gate as (
    insert into dibs.group_gate (group_key, queue_id, running, tat, next, floors)
    select h.group_key, (queue).id, h.running, h.tat, (h.next).id, case when h.is_stopped then coalesce(h.floors, '{}') else '{}' end
    from seen as h where h.running > 0 or h.tat > at or (h.next).id is not null
  ), later as (
    -- Insert a pointer so that a claim returns when the next job is due, or when the rate has caught up, to delete the gate.
    insert into dibs.group_pointer (queue_id, group_key, place)
    select number, h.group_key, l.place from seen as h
    cross join lateral (
      select case when (h.next).due_at > at then (h.next).due_at when h.running = 0 and h.floors is null then h.tat end as place) as l
    where l.place > at and not (select p from dibs._is_pointed_at(h.group_key, null, l.place, at) as p)
  )
  insert into dibs.group_pointer (queue_id, group_key, place, level, floor_at, floor_id, cost)
  select number, h.group_key, greatest(h.place, f.due_at), f.level, f.due_at, f.id, f.cost from seen as h cross join lateral unnest(h.floors) as f
  where not h.is_stopped;
end
$$;

comment on function dibs._save_group_gates is
'Put back the gates of limited groups that are in use, and pointers to the tickets that are left. A group that has to wait for a
running job, or for the job that comes next, is not pointed at: its gate knows where its tickets are.';
