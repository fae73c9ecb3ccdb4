-- Tickets that wait for a free unit: the first of them, and bringing them back.

create or replace function dibs._first_blocked(limit_id integer, out rank integer, out due_at timestamptz, out id uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_name text := 'dibs.waits_' || limit_id;
  v_text text := current_setting(v_name, true);
  v_body text := substr(v_text, strpos(v_text, ':') + 1);
  v_began bigint := dibs._micros(clock_timestamp());
  v_until bigint;
  v_top bigint := (select s.last_value from dibs.blocked_n_seq as s);
  v_new record;
begin
  if v_text = dibs._sealed(v_body) and v_began between split_part(v_body, ' ', 1)::bigint and split_part(v_body, ' ', 2)::bigint then
    v_until := split_part(v_body, ' ', 2)::bigint;
    rank := split_part(v_body, ' ', 4)::integer;
    due_at := dibs._from_micros(split_part(v_body, ' ', 5)::bigint);
    id := split_part(v_body, ' ', 6)::uuid;
    -- What came since the last look may stand in front of what was the first then.
    select 10 - b.priority as rank, b.due_at, b.id into v_new from dibs.blocked as b
    where b.limit_id = _first_blocked.limit_id and b.n > split_part(v_body, ' ', 3)::bigint
    order by (10 - b.priority), b.due_at, b.id limit 1;
    if (v_new.rank, v_new.due_at, v_new.id) < (_first_blocked.rank, _first_blocked.due_at, _first_blocked.id) then
      rank := v_new.rank;
      due_at := v_new.due_at;
      id := v_new.id;
    end if;
  else
    rank := -1;
    due_at := '-infinity';
    id := '00000000-0000-0000-0000-000000000000';
  end if;
  select (10 - b.priority), b.due_at, b.id into rank, due_at, id from dibs.blocked as b
  where b.limit_id = _first_blocked.limit_id and ((10 - b.priority), b.due_at, b.id) >= (_first_blocked.rank, _first_blocked.due_at, _first_blocked.id)
  order by (10 - b.priority), b.due_at, b.id limit 1;
  v_until := coalesce(v_until, v_began + greatest(250000, 20 * (dibs._micros(clock_timestamp()) - v_began)));
  perform set_config(v_name, dibs._sealed(concat_ws(' ', v_began, v_until, v_top - 200, coalesce(rank, 99),
    dibs._micros(coalesce(due_at, 'epoch')), coalesce(id, '00000000-0000-0000-0000-000000000000'))), false);
end
$$;

comment on function dibs._first_blocked is
'The first that waits for a limit; nothing if nobody does. What the connection saw is not read again, but for a look at everything
now and then, for what was committed late or rolled back.';

create or replace function dibs._ring_for(limit_id integer) returns void
language sql volatile
begin atomic
  select pg_notify('dibs', q.name)
  from (
    select q.id, q.name, q.ring from dibs.limit_rule as b join dibs.queue as q on b.scope = 'queue' and q.name = b.name
    where b.id = _ring_for.limit_id
    union
    select q.id, q.name, q.ring from dibs._first_blocked(_ring_for.limit_id) as f
    join dibs.blocked as b on b.id = f.id join dibs.queue as q on q.id = b.queue_id
  ) as q
  where q.ring and pg_try_advisory_xact_lock(20002, q.id);
end;

comment on function dibs._ring_for is 'Ring for the queues whose jobs wait for a limit.';

create or replace function dibs._unblock(queue_ids integer[], at timestamptz, floors bigint[], out lower bigint[])
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_limit record;
  v_first record;
  v_moved record;
begin
  lower := floors;
  for v_limit in
    select b.id from dibs.limit_rule as b
    where b.concurrency is not null
      and exists (select from dibs.limit_unit as s where s.limit_id = b.id and s.n >= dibs._unit_floor(b.id) and s.freed_at <= at)
    order by b.id
  loop
    select f.* into v_first from dibs._first_blocked(v_limit.id) as f;
    continue when v_first.id is null;
    select m.* into v_moved from dibs._unblock_limit(v_limit.id, v_first.rank, v_first.due_at, v_first.id, queue_ids, at) as m;
    for i in 1 .. coalesce(cardinality(v_moved.dues), 0) loop
      continue when v_moved.lanes[i] is not null;
      lower[array_position(queue_ids, v_moved.queues[i]) * 11 - 10 + v_moved.levels[i]] := least(
        lower[array_position(queue_ids, v_moved.queues[i]) * 11 - 10 + v_moved.levels[i]], dibs._micros(v_moved.dues[i]) - 1);
    end loop;
  end loop;
end
$$;

comment on function dibs._unblock is
'Bring those back to ready that wait for a slot which is free now. They keep their place, so the floors of this claim are lowered to them.';

create or replace function dibs._unblock_limit(
  of_limit integer, from_rank integer, from_at timestamptz, from_id uuid, queue_ids integer[], at timestamptz,
  out queues integer[], out levels smallint[], out dues timestamptz[], out lanes uuid[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_free bigint := (
    select sum(s.units) from dibs.limit_unit as s
    where s.limit_id = of_limit and s.n >= dibs._unit_floor(of_limit) and s.freed_at <= at)
    - coalesce((select b.debt from dibs.limit_rule as b where b.id = of_limit), 0);
  v_waiting record;
  v_ids uuid[] := '{}'::uuid[];
  v_turns smallint[];
begin
  -- As many as the free units may serve: one that needs more stands in nobody's way. One may find its slot taken by another;
  -- then it waits again.
  for v_waiting in
    select b.id, b.units from dibs.blocked as b
    where b.limit_id = of_limit and ((10 - b.priority), b.due_at, b.id) >= (from_rank, from_at, from_id)
      and b.units <= v_free and (queue_ids is null or b.queue_id = any (queue_ids))
    order by (10 - b.priority), b.due_at, b.id
  loop
    continue when v_waiting.units > v_free;
    v_ids := v_ids || v_waiting.id;
    v_free := v_free - v_waiting.units;
    exit when v_free = 0 or cardinality(v_ids) = 10000;
  end loop;
  with pick as materialized (
    select b.spot, k.n from unnest(v_ids) with ordinality as k (id, n)
    cross join lateral (select b.ctid as spot from dibs.blocked as b where b.id = k.id for update skip locked) as b
  ), gone as (
    delete from dibs.blocked as b using pick as p where b.ctid = p.spot returning b.*
  ), back as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
      fingerprint, lane, cost)
    select g.id, g.due_at, g.expire_at, g.queue_id, g.run, g.charged, g.losses, g.priority, queue_ids is null, g.own_lease, g.history,
      g.fingerprint, g.lane, g.cost
    from gone as g
  )
  select array_agg(g.queue_id), array_agg(g.priority), array_agg(g.due_at), array_agg(g.lane), array_agg(g.id), array_agg(g.turn)
  into queues, levels, dues, lanes, v_ids, v_turns from gone as g;
  if exists (select from unnest(lanes) as l where l is not null) then
    perform dibs._free_units(lanes, v_turns, queues, v_ids, at);
    perform dibs._add_pointers(v_ids, at);
  end if;
end
$$;

comment on function dibs._unblock_limit is 'Bring back who waits for one limit, from the first on, as far as its free units go.';
