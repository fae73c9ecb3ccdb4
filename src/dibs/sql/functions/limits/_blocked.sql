-- Blocked tickets: the first that waits for a limit, and moving tickets from blocked back to ready (unblocking).

create or replace function dibs._before_all_blocked() returns dibs.first_blocked
language sql immutable
return row(-101, '-infinity', dibs._nil_id(), 0, null, null)::dibs.first_blocked;

comment on function dibs._before_all_blocked is
'Return a place before every blocked ticket: rank -101 sorts before the rank of each priority, -100 to 100.';

create or replace function dibs._first_blocked(of_limit integer) returns dibs.first_blocked
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_began bigint := dibs._micros(clock_timestamp());
  v_last_n bigint := (select s.last_value from dibs.blocked_n_seq as s);
  v_first dibs.first_blocked := dibs._recall('blocked', of_limit)::dibs.first_blocked;
  v_kept dibs.first_blocked;
  v_new record;
begin
  if v_began between v_first.since and v_first.until then
    -- Tickets blocked since the last look may sort before the first one we remember.
    select b.* into v_new
    from (
      select -b.priority as rank, b.due_at, b.id from dibs.blocked as b
      where b.limit_id = of_limit and b.n > v_first.n order by b.n) as b
    order by b.rank, b.due_at, b.id limit 1;
    if (v_new.rank, v_new.due_at, v_new.id) < (v_first.rank, v_first.due_at, v_first.id) then
      v_first.rank := v_new.rank;
      v_first.due_at := v_new.due_at;
      v_first.id := v_new.id;
    end if;
  else
    v_first := dibs._before_all_blocked();
  end if;
  select (-b.priority), b.due_at, b.id into v_first.rank, v_first.due_at, v_first.id from dibs.blocked as b
  where b.limit_id = of_limit
    and ((-b.priority), b.due_at, b.id) >= (v_first.rank, v_first.due_at, v_first.id)
  order by (-b.priority), b.due_at, b.id limit 1;
  v_first.n := v_last_n - dibs._uncommitted_numbers();
  v_first.since := v_began;
  v_first.until := coalesce(v_first.until, v_began + greatest(
    dibs._constant('commit_lag_us'),
    dibs._constant('look_back_cooldown') * (dibs._micros(clock_timestamp()) - v_began)));
  v_kept := v_first;
  if v_first.id is null then
    -- No ticket waits. Remember a place after all of them.
    v_kept.rank := 101;
    v_kept.due_at := 'infinity';
    v_kept.id := dibs._nil_id();
  end if;
  perform dibs._remember('blocked', of_limit, v_kept::text);
  return v_first;
end
$$;

comment on function dibs._first_blocked is
'Return the first ticket that waits for a limit; its id is null if none does. The connection remembers it, so that dead
rows before it are not read again. Look at everything again now and then, for tickets whose transaction committed
late.';

create or replace function dibs._ring_for_limit(of_limit integer) returns void
language sql volatile
begin atomic
  select pg_notify('dibs', q.id::text)
  from (
    select q.id, q.name, q.ring from dibs.limit_rule as r join dibs.queue as q on q.name = r.of_queue
    where r.id = of_limit
    union
    select q.id, q.name, q.ring from dibs._first_blocked(of_limit) as f
    cross join lateral (select b.queue_id from dibs.blocked as b where b.id = f.id offset 0) as b
    join dibs.queue as q on q.id = b.queue_id
  ) as q
  cross join lateral (select from dibs.bell as b where b.queue_id = q.id for update skip locked) as b
  where q.ring;
end;

comment on function dibs._ring_for_limit is
'Ring for the queue whose own limit this is, and for the queue of the first ticket that waits for it.';

create or replace function dibs._unblock_queues(of_queues integer[], at timestamptz)
returns table (queue_id integer, priority smallint, due_at timestamptz, id uuid)
language plpgsql volatile
as $$
declare
  v_limit record;
  v_first dibs.first_blocked;
begin
  for v_limit in
    select r.id from dibs.limit_rule as r
    -- A scalar subquery instead of EXISTS, which the planner may turn into a scan of all units.
    where r.of_queue is null and dibs._free_tokens(r, at) > 0 and (r.concurrency is null or (
      select true from dibs.limit_unit as s
      where s.limit_id = r.id and s.n >= dibs._unit_hint(r.id) and s.freed_at <= at limit 1))
    order by r.id
  loop
    v_first := dibs._first_blocked(v_limit.id);
    continue when v_first.id is null;
    return query
    select t.queue_id, t.priority, t.due_at, t.id
    from dibs._unblock_limit(v_limit.id, v_first, of_queues, at) as u,
      unnest(u.queue_ids, u.priorities, u.due_times, u.ids, u.group_keys)
        as t (queue_id, priority, due_at, id, group_key)
    where t.group_key is null;
  end loop;
end
$$;

comment on function dibs._unblock_queues is
'Unblock the tickets of these queues that wait for a limit with free units and tokens. Return those without a group, so
that the caller can lower its floors to them; a group has a pointer to its tickets.';

create or replace function dibs._unblock_and_lower_floors(scans dibs.queue_scan[], at timestamptz)
returns dibs.queue_scan[]
language plpgsql volatile
as $$
declare
  v_unblocked record;
  v_slot integer;
begin
  for v_unblocked in
    select s.n, t.priority, dibs._micros(min(t.due_at)) as due_us, (array_agg(t.id order by t.due_at, t.id))[1] as id
    from dibs._unblock_queues(array(select (s.queue).id from unnest(scans) as s), at) as t
    join (select (s.queue).id, s.ordinality::integer as n from unnest(scans) with ordinality as s) as s
      on s.id = t.queue_id
    group by 1, 2
  loop
    v_slot := array_position(((scans[v_unblocked.n]).floor).priorities, v_unblocked.priority);
    continue when v_slot is null or (v_unblocked.due_us, v_unblocked.id)
      >= (((scans[v_unblocked.n]).floor).due_us[v_slot], ((scans[v_unblocked.n]).floor).ids[v_slot]);
    scans[v_unblocked.n].floor.due_us[v_slot] := v_unblocked.due_us;
    scans[v_unblocked.n].floor.ids[v_slot] := v_unblocked.id;
  end loop;
  return scans;
end
$$;

comment on function dibs._unblock_and_lower_floors is
'Unblock tickets of a claim''s queues. Where the first of them sorts below a scan''s floor (the ticket from which the
scan starts), lower the floor to it, so that this claim can take it. Return the scans.';

create or replace function dibs._unblock_tickets(
  of_ids uuid[], due timestamptz, ring boolean, at timestamptz,
  out ids uuid[], out queue_ids integer[], out priorities smallint[], out due_times timestamptz[],
  out group_keys uuid[])
language plpgsql volatile
as $$
declare
  v_group_holds dibs.group_hold[];
begin
  with pick as materialized (
    select b.spot from unnest(of_ids) as k (id)
    cross join lateral (select b.ctid as spot from dibs.blocked as b where b.id = k.id for update skip locked) as b
  ), gone as (
    delete from dibs.blocked as b using pick as p where b.ctid = p.spot returning b.*
  ), put as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
      fingerprint, group_key, cost)
    select g.id, coalesce(due, g.due_at), g.expire_at, g.queue_id, g.run, g.charged, g.losses, g.priority,
      _unblock_tickets.ring, g.own_lease, g.history, g.fingerprint, g.group_key, g.cost
    from gone as g
  )
  select array_agg(g.id), array_agg(g.queue_id), array_agg(g.priority), array_agg(g.due_at), array_agg(g.group_key),
    array_agg(g.group_hold)
  into ids, queue_ids, priorities, due_times, group_keys, v_group_holds from gone as g;
  if exists (select from unnest(group_keys) as k where k is not null) then
    perform dibs._end_group_runs(group_keys, v_group_holds, queue_ids, ids, at);
    perform dibs._add_pointers(ids, at);
  end if;
end
$$;

comment on function dibs._unblock_tickets is
'Move these tickets from blocked to ready, except those that are locked: to the places they had, or due at `due` unless
it is null. Return the tickets that moved (null if none did), with the due times they had.';

create or replace function dibs._unblock_limit(
  of_limit integer, first dibs.first_blocked, of_queues integer[], at timestamptz,
  out ids uuid[], out queue_ids integer[], out priorities smallint[], out due_times timestamptz[],
  out group_keys uuid[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_rule dibs.limit_rule;
  v_free bigint := (
    select sum(s.units) from dibs.limit_unit as s
    where s.limit_id = of_limit and s.n >= dibs._unit_hint(of_limit) and s.freed_at <= at);
  v_most integer;
  v_waiting record;
  v_ids uuid[] := '{}'::uuid[];
begin
  select r.* into v_rule from dibs.limit_rule as r where r.id = of_limit;
  -- Without a concurrency (only a rate, or dropped), a limit has as many units as the tickets can need.
  v_free := case when v_rule.concurrency is null then dibs._constant('max_tickets_moved') * 1000000
    else v_free - v_rule.debt end;
  v_most := least(dibs._constant('max_tickets_moved'), dibs._free_tokens(v_rule, at));
  if v_most = 0 then
    return;
  end if;
  -- Unblock as many as the free units and the rate allow; skip tickets that need more than is free. If another claim
  -- takes the units first, the ticket is blocked again.
  for v_waiting in
    select b.id, b.units from dibs.blocked as b
    where b.limit_id = of_limit and ((-b.priority), b.due_at, b.id) >= (first.rank, first.due_at, first.id)
      and b.units <= v_free and (of_queues is null or b.queue_id = any (of_queues))
    order by (-b.priority), b.due_at, b.id
  loop
    continue when v_waiting.units > v_free;
    v_ids := v_ids || v_waiting.id;
    v_free := v_free - v_waiting.units;
    exit when v_free = 0 or cardinality(v_ids) >= v_most;
  end loop;
  select u.ids, u.queue_ids, u.priorities, u.due_times, u.group_keys
  into ids, queue_ids, priorities, due_times, group_keys
  from dibs._unblock_tickets(v_ids, null, of_queues is null, at) as u;
end
$$;

comment on function dibs._unblock_limit is
'Unblock tickets that wait for a limit, from `first` on, as far as its free units and its rate go, and at most 1,000.
Only those of `of_queues`, where the caller claims; null: those of every queue, and ring for them. Return as
_unblock_tickets.';

create or replace function dibs._unblock_all(of_limit integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  loop
    exit when (select u.ids is null from dibs._unblock_limit(of_limit, dibs._before_all_blocked(), null, at) as u);
  end loop;
end
$$;

comment on function dibs._unblock_all is 'Unblock every ticket that waits for a limit which is not set any more.';
