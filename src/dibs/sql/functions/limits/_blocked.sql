-- Tickets that wait for a free unit: the first of them, and bringing them back.

create or replace function dibs._first_blocked(limit_id integer) returns dibs.first_blocked
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_began bigint := dibs._micros(clock_timestamp());
  v_top bigint := (select s.last_value from dibs.blocked_n_seq as s);
  v_first dibs.first_blocked := dibs._recall('blocked', limit_id)::dibs.first_blocked;
  v_new record;
begin
  if v_began between v_first.since and v_first.until then
    -- What came since the last look may stand in front of what was the first then.
    select b.* into v_new
    from (
      select -b.priority as rank, b.due_at, b.id from dibs.blocked as b
      where b.limit_id = _first_blocked.limit_id and b.n > v_first.n order by b.n) as b
    order by b.rank, b.due_at, b.id limit 1;
    if (v_new.rank, v_new.due_at, v_new.id) < (v_first.rank, v_first.due_at, v_first.id) then
      v_first.rank := v_new.rank;
      v_first.due_at := v_new.due_at;
      v_first.id := v_new.id;
    end if;
  else
    v_first := row(-101, '-infinity', dibs._nil_id(), 0, v_began, null);
  end if;
  select (-b.priority), b.due_at, b.id into v_first.rank, v_first.due_at, v_first.id from dibs.blocked as b
  where b.limit_id = _first_blocked.limit_id and ((-b.priority), b.due_at, b.id) >= (v_first.rank, v_first.due_at, v_first.id)
  order by (-b.priority), b.due_at, b.id limit 1;
  -- The last numbers may not be committed yet.
  v_first.n := v_top - 200;
  v_first.since := v_began;
  v_first.until := coalesce(v_first.until,
    v_began + greatest(dibs._commit_lag_us(), dibs._look_back_cooldown(dibs._micros(clock_timestamp()) - v_began)));
  perform dibs._remember('blocked', limit_id, row(coalesce(v_first.rank, 101), coalesce(v_first.due_at, 'infinity'),
    coalesce(v_first.id, dibs._nil_id()), v_first.n, v_first.since, v_first.until)::dibs.first_blocked::text);
  return v_first;
end
$$;

comment on function dibs._first_blocked is
'The first that waits for a limit; without an id if nobody does. What the connection saw is not read again, except for a look at
everything now and then, for what was committed late or rolled back.';

create or replace function dibs._ring_for_limit(limit_id integer) returns void
language sql volatile
begin atomic
  select pg_notify('dibs', q.id::text)
  from (
    select q.id, q.name, q.ring from dibs.limit_rule as b join dibs.queue as q on b.scope = 'queue' and q.name = b.name
    where b.id = _ring_for_limit.limit_id
    union
    select q.id, q.name, q.ring from dibs._first_blocked(_ring_for_limit.limit_id) as f
    cross join lateral (select b.queue_id from dibs.blocked as b where b.id = f.id offset 0) as b
    join dibs.queue as q on q.id = b.queue_id
  ) as q
  cross join lateral (select from dibs.bell as b where b.queue_id = q.id for update skip locked) as b
  where q.ring;
end;

comment on function dibs._ring_for_limit is 'Ring for the queues whose jobs wait for a limit.';

create or replace function dibs._unblock_queues(queue_ids integer[], at timestamptz)
returns table (queue_id integer, priority smallint, due_at timestamptz, id uuid)
language plpgsql volatile
as $$
declare
  v_limit record;
  v_first dibs.first_blocked;
begin
  for v_limit in
    select b.id from dibs.limit_rule as b
    -- A scalar subquery and not EXISTS, which the planner may turn into a scan of all units.
    where b.scope <> 'queue' and dibs._free_tokens(b, at) > 0 and (b.concurrency is null or (
      select true from dibs.limit_unit as s where s.limit_id = b.id and s.n >= dibs._unit_hint(b.id) and s.freed_at <= at limit 1))
    order by b.id
  loop
    v_first := dibs._first_blocked(v_limit.id);
    continue when v_first.id is null;
    return query
    select m.queue_id, m.priority, m.due_at, m.id
    from dibs._unblock_limit(v_limit.id, v_first.rank, v_first.due_at, v_first.id, queue_ids, at) as u,
      unnest(u.queues, u.levels, u.dues, u.back, u.group_keys) as m (queue_id, priority, due_at, id, group_key)
    where m.group_key is null;
  end loop;
end
$$;

comment on function dibs._unblock_queues is
'Bring those back to ready that wait for a unit which is free now. They keep their place; those without a group are returned, so
that floors can be lowered to them.';

create or replace function dibs._unblock_and_lower_floors(scans dibs.queue_scan[], at timestamptz) returns dibs.queue_scan[]
language plpgsql volatile
as $$
declare
  v_back record;
  v_level integer;
begin
  for v_back in
    select s.n, b.priority, dibs._micros(min(b.due_at)) as due_us, (array_agg(b.id order by b.due_at, b.id))[1] as id
    from dibs._unblock_queues(array(select (s.queue).id from unnest(scans) as s), at) as b
    join (select (s.queue).id, s.ordinality::integer as n from unnest(scans) with ordinality as s) as s on s.id = b.queue_id
    group by 1, 2
  loop
    v_level := array_position(((scans[v_back.n]).floor).priorities, v_back.priority);
    continue when v_level is null
      or (v_back.due_us, v_back.id) >= (((scans[v_back.n]).floor).due_us[v_level], ((scans[v_back.n]).floor).ids[v_level]);
    scans[v_back.n].floor.due_us[v_level] := v_back.due_us;
    scans[v_back.n].floor.ids[v_level] := v_back.id;
  end loop;
  return scans;
end
$$;

comment on function dibs._unblock_and_lower_floors is 'Bring back who waits for a unit that is free now, and lower this claim''s floors to them.';

create or replace function dibs._unblock_tickets(
  ids uuid[], due timestamptz, ring boolean, at timestamptz,
  out back uuid[], out queues integer[], out levels smallint[], out dues timestamptz[], out group_keys uuid[])
language plpgsql volatile
as $$
declare
  v_group_holds dibs.group_hold[];
begin
  with pick as materialized (
    select b.spot from unnest(ids) as k (id)
    cross join lateral (select b.ctid as spot from dibs.blocked as b where b.id = k.id for update skip locked) as b
  ), gone as (
    delete from dibs.blocked as b using pick as p where b.ctid = p.spot returning b.*
  ), put as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
      fingerprint, group_key, cost)
    select g.id, coalesce(due, g.due_at), g.expire_at, g.queue_id, g.run, g.charged, g.losses, g.priority, _unblock_tickets.ring,
      g.own_lease, g.history, g.fingerprint, g.group_key, g.cost
    from gone as g
  )
  select array_agg(g.id), array_agg(g.queue_id), array_agg(g.priority), array_agg(g.due_at), array_agg(g.group_key), array_agg(g.group_hold)
  into back, queues, levels, dues, group_keys, v_group_holds from gone as g;
  if exists (select from unnest(group_keys) as l where l is not null) then
    perform dibs._end_group_runs(group_keys, v_group_holds, queues, back, at);
    perform dibs._add_pointers(back, at);
  end if;
end
$$;

comment on function dibs._unblock_tickets is
'Bring these back to ready, to their places or due at another time, except for what is locked; those that came, with their queues,
priorities, due times and groups.';

create or replace function dibs._unblock_limit(
  of_limit integer, from_rank integer, from_at timestamptz, from_id uuid, queue_ids integer[], at timestamptz,
  out back uuid[], out queues integer[], out levels smallint[], out dues timestamptz[], out group_keys uuid[])
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
  select b.* into v_rule from dibs.limit_rule as b where b.id = of_limit;
  -- A limit without a concurrency has only a rate, or is not set any more: units hold nobody up.
  v_free := case when v_rule.concurrency is null then 1000000000 else v_free - v_rule.debt end;
  v_most := least(dibs._max_tickets_moved(), dibs._free_tokens(v_rule, at));
  if v_most = 0 then
    return;
  end if;
  -- As many as the free units and the rate may serve: one that needs more stands in nobody's way. One may find its slot taken by another;
  -- then it waits again.
  for v_waiting in
    select b.id, b.units from dibs.blocked as b
    where b.limit_id = of_limit and ((-b.priority), b.due_at, b.id) >= (from_rank, from_at, from_id)
      and b.units <= v_free and (queue_ids is null or b.queue_id = any (queue_ids))
    order by (-b.priority), b.due_at, b.id
  loop
    continue when v_waiting.units > v_free;
    v_ids := v_ids || v_waiting.id;
    v_free := v_free - v_waiting.units;
    exit when v_free = 0 or cardinality(v_ids) >= v_most;
  end loop;
  select u.back, u.queues, u.levels, u.dues, u.group_keys into back, queues, levels, dues, group_keys
  from dibs._unblock_tickets(v_ids, null, queue_ids is null, at) as u;
end
$$;

comment on function dibs._unblock_limit is 'Bring back who waits for one limit, from the first on, as far as its free units and its rate go.';

create or replace function dibs._unblock_all(of_limit integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  loop
    exit when (select u.queues is null from dibs._unblock_limit(of_limit, -101, '-infinity', dibs._nil_id(), null, at) as u);
  end loop;
end
$$;

comment on function dibs._unblock_all is 'Bring back all jobs that wait for a limit which is not set any more.';
