-- Blocked tickets: finding the first that waits for a limit, and moving tickets from blocked to ready (unblocking).
-- Tickets wait in the order of claims: by rank (the priority times -1), then due time, then id.

create or replace function dibs._first_blocked(of_limit integer) returns dibs.first_blocked
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_began bigint := dibs._micros(clock_timestamp());
  v_last_n bigint := (select s.last_value from dibs.blocked_n_seq as s);
  v_hint dibs.first_blocked := dibs._recall('blocked', of_limit)::dibs.first_blocked;
  v_from dibs.first_blocked;
  v_new record;
  v_first dibs.first_blocked;
begin
  if v_began between v_hint.since and v_hint.until then
    -- Look from the hint on, or from the first ticket before it that was blocked since. The inner ORDER BY makes the
    -- planner find such tickets by the index on n.
    v_from := v_hint;
    select b.* into v_new
    from (
      select -b.priority as rank, b.due_at, b.id from dibs.blocked as b
      where b.limit_id = of_limit and b.n > v_hint.n order by b.n) as b
    order by b.rank, b.due_at, b.id limit 1;
    if (v_new.rank, v_new.due_at, v_new.id) < (v_hint.rank, v_hint.due_at, v_hint.id) then
      v_from.rank := v_new.rank;
      v_from.due_at := v_new.due_at;
      v_from.id := v_new.id;
    end if;
  else
    -- There is no hint, or it is too old: a ticket with a number below its n may have been committed since. Look at all
    -- tickets: their ranks are -100 to 100.
    v_from.rank := -101;
    v_from.due_at := '-infinity';
    v_from.id := dibs._nil_id();
    v_hint.until := null;
  end if;
  select (-b.priority), b.due_at, b.id into v_first.rank, v_first.due_at, v_first.id from dibs.blocked as b
  where b.limit_id = of_limit
    and ((-b.priority), b.due_at, b.id) >= (v_from.rank, v_from.due_at, v_from.id)
  order by (-b.priority), b.due_at, b.id limit 1;
  -- Make the next hint. If no ticket waits, it is a place after all of them. Its `until` stays, unless this call looked
  -- at all tickets.
  v_hint.rank := coalesce(v_first.rank, 101);
  v_hint.due_at := coalesce(v_first.due_at, 'infinity');
  v_hint.id := coalesce(v_first.id, dibs._nil_id());
  v_hint.n := v_last_n - dibs._constant('uncommitted_numbers');
  v_hint.since := v_began;
  v_hint.until := coalesce(v_hint.until, v_began + greatest(dibs._constant('commit_lag_us'),
    dibs._constant('look_back_cooldown') * (dibs._micros(clock_timestamp()) - v_began)));
  perform dibs._remember('blocked', of_limit, v_hint::text);
  return v_first;
end
$$;

comment on function dibs._first_blocked is
'Return the place (rank, due_at, id) of the first ticket that waits for a limit; all null if none does. Remember it in
the session as a hint, so that the next call looks from there on and skips the dead rows before it.';

create or replace function dibs._first_blocked_queue(of_limit integer) returns integer
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_first constant dibs.first_blocked := dibs._first_blocked(of_limit);
begin
  if v_first.id is null then
    return null;
  end if;
  return (
    select b.queue_id
    from (
      select b.queue_id from dibs.blocked as b
      where b.limit_id = of_limit and ((-b.priority), b.due_at, b.id) >= (v_first.rank, v_first.due_at, v_first.id)
      order by (-b.priority), b.due_at, b.id limit dibs._constant('max_tickets_moved')) as b
    where (select q.paused_at is null from dibs.queue as q where q.id = b.queue_id)
    limit 1);
end
$$;

comment on function dibs._first_blocked_queue is
'Return the queue of the first ticket that waits for a limit. Pass over tickets of paused queues, up to 1,000 of them.';

create or replace function dibs._ring_for_limit(of_limit integer) returns void
language sql volatile
begin atomic
  select pg_notify('dibs', q.id::text)
  from (
    select q.id, q.ring from dibs.limit_rule as r join dibs.queue as q on q.name = r.of_queue
    where r.id = of_limit
    union
    select q.id, q.ring from (select dibs._first_blocked_queue(of_limit) as id) as f join dibs.queue as q on q.id = f.id
  ) as q
  cross join lateral (select from dibs.bell as b where b.queue_id = q.id for update skip locked) as b
  where q.ring;
end;

comment on function dibs._ring_for_limit is
'Ring for the queue whose own limit this is, or for the queue of the first ticket that waits for it.';

create or replace function dibs._unblock_tickets(ids uuid[], due timestamptz, ring boolean, at timestamptz)
returns dibs.blocked[]
language plpgsql volatile
as $$
declare
  v_unblocked dibs.blocked[];
begin
  with pick as materialized (
    select b.spot from unnest(ids) as k (id)
    cross join lateral (select b.ctid as spot from dibs.blocked as b where b.id = k.id for update skip locked) as b
  ), gone as (
    delete from dibs.blocked as b using pick as p where b.ctid = p.spot returning b.*, b as ticket
  ), moved as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
      fingerprint, group_key, cost)
    select g.id, coalesce(due, g.due_at), g.expire_at, g.queue_id, g.run, g.charged, g.losses, g.priority,
      _unblock_tickets.ring, g.own_lease, g.history, g.fingerprint, g.group_key, g.cost
    from gone as g
  )
  select array_agg(g.ticket) into v_unblocked from gone as g;
  perform dibs._end_group_runs(
      array_agg(b.group_key), array_agg(b.group_hold), array_agg(b.queue_id), array_agg(b.id), at),
    dibs._add_pointers(array_agg(b.id), at)
  from unnest(v_unblocked) as b where b.group_key is not null having count(*) > 0;
  return v_unblocked;
end
$$;

comment on function dibs._unblock_tickets is
'Move these tickets from blocked to ready, and skip locked ones. A ticket keeps its due time if `due` is null, and is
due then otherwise. `ring`: wake workers for them at the commit. Return the tickets as they were in blocked; null if
none was moved.';

create or replace function dibs._unblock_limit(
  of_limit integer, of_queues integer[], ring boolean, at timestamptz)
returns dibs.blocked[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c_unlimited constant bigint := 9223372036854775807;
  v_rule dibs.limit_rule;
  v_first constant dibs.first_blocked := dibs._first_blocked(of_limit);
  v_max_tickets integer;
  v_free_units bigint;
  v_left_units bigint;
  v_ticket record;
  v_ids uuid[] := '{}'::uuid[];
begin
  if v_first.id is null then
    return null;
  end if;
  select r.* into v_rule from dibs.limit_rule as r where r.id = of_limit;
  v_max_tickets := least(dibs._constant('max_tickets_moved'), dibs._free_tokens(v_rule, at));
  -- The units of a limit without a concurrency (it has only a rate, or was dropped) never run out.
  v_free_units := case when v_rule.concurrency is null then c_unlimited else coalesce((
    select sum(u.units) - v_rule.debt from dibs.limit_unit as u
    where u.limit_id = of_limit and u.n >= dibs._unit_hint(of_limit) and u.freed_at <= at), 0) end;
  if v_max_tickets = 0 or v_free_units <= 0 then
    return null;
  end if;
  -- Skip tickets that need more units than are left, and expired ones, which no claim takes. If another claim takes the
  -- units first, the tickets are blocked again.
  v_left_units := v_free_units;
  for v_ticket in
    select b.id, b.units from dibs.blocked as b
    where b.limit_id = of_limit and ((-b.priority), b.due_at, b.id) >= (v_first.rank, v_first.due_at, v_first.id)
      and b.units <= v_free_units and b.queue_id = any (of_queues) and b.expire_at > at
    order by (-b.priority), b.due_at, b.id
  loop
    continue when v_ticket.units > v_left_units;
    v_ids := v_ids || v_ticket.id;
    v_left_units := v_left_units - v_ticket.units;
    exit when v_left_units = 0 or cardinality(v_ids) >= v_max_tickets;
  end loop;
  return dibs._unblock_tickets(v_ids, null, ring, at);
end
$$;

comment on function dibs._unblock_limit is
'Unblock tickets of these queues that wait for a limit, in order: as many as its free units and its rate allow, and at
most 1,000. `ring`: wake workers for them. Return them as _unblock_tickets does.';

create or replace function dibs._unblock_for_claim(scans dibs.queue_scan[], at timestamptz) returns dibs.queue_scan[]
language plpgsql volatile
as $$
declare
  v_queue_ids constant integer[] := array(select (s.queue).id from unnest(scans) as s);
  v_ticket record;
  v_floor dibs.floor;
  v_slot integer;
begin
  -- Find the first ticket that was unblocked in each queue and priority. Tickets of groups need no floor: claims find
  -- them by the pointers that _unblock_tickets has inserted.
  for v_ticket in
    with unblocked as materialized (
      select t.queue_id, t.priority, t.due_at, t.id
      from dibs.limit_rule as r
      cross join lateral unnest(dibs._unblock_limit(r.id, v_queue_ids, false, at)) as t
      where t.group_key is null and r.of_queue is null
        and (r.rate is null or dibs._free_tokens(r, at) > 0) and (r.concurrency is null or (
          -- A scalar subquery instead of EXISTS, which the planner may turn into a scan of all units.
          select true from dibs.limit_unit as u
          where u.limit_id = r.id and u.n >= dibs._unit_hint(r.id) and u.freed_at <= at limit 1))
    )
    select s.scan_no, u.priority, dibs._micros(min(u.due_at)) as due_us,
      (array_agg(u.id order by u.due_at, u.id))[1] as id
    from unblocked as u
    join (select (s.queue).id, s.ordinality::integer as scan_no from unnest(scans) with ordinality as s) as s
      on s.id = u.queue_id
    group by 1, 2
  loop
    -- If it is below the floor of its priority, lower the floor to it.
    v_floor := (scans[v_ticket.scan_no]).floor;
    v_slot := array_position(v_floor.priorities, v_ticket.priority);
    if (v_ticket.due_us, v_ticket.id) < (v_floor.due_us[v_slot], v_floor.ids[v_slot]) then
      scans[v_ticket.scan_no].floor.due_us[v_slot] := v_ticket.due_us;
      scans[v_ticket.scan_no].floor.ids[v_slot] := v_ticket.id;
    end if;
  end loop;
  return scans;
end
$$;

comment on function dibs._unblock_for_claim is
'Unblock tickets of a claim''s queues that wait for limits with free units and tokens. The scan of a queue starts at its
floor, so lower the floors to these tickets, and return the scans.';

create or replace function dibs._unblock_all(of_limit integer, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_ids uuid[];
begin
  loop
    v_ids := array(
      select b.id from dibs.blocked as b where b.limit_id = of_limit
      order by (-b.priority), b.due_at, b.id limit dibs._constant('max_tickets_moved') for update skip locked);
    exit when v_ids = '{}';
    perform dibs._unblock_tickets(v_ids, null, true, at);
  end loop;
end
$$;

comment on function dibs._unblock_all is
'Unblock every ticket that waits for a limit which was dropped, except locked ones, and ring for their queues.';
