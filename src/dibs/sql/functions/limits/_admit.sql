-- Admission: tickets that a claim took either get what their jobs need of limits, or move to blocked.

create or replace function dibs._limit_name(of_limit integer) returns text
language sql stable
return (select r.scope || ' ' || r.name from dibs.limit_rule as r where r.id = of_limit);

comment on function dibs._limit_name is
'Return the scope and the name of a limit, such as `kind render`; null if it is gone.';

create or replace function dibs._part_of(batch dibs.taken_batch, ords integer[]) returns dibs.taken_batch
language plpgsql immutable
as $$
begin
  batch.group_holds := case when batch.group_holds is not null then array(
    select batch.group_holds[o.ord] from unnest(ords) with ordinality as o (ord, n) order by o.n) end;
  batch.tickets := array(
    select t.ticket from (
      select row(t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority, t.ring, t.own_lease,
        t.history, t.fingerprint, t.group_key, t.cost)::dibs.ready as ticket, t.ordinality
      from unnest(batch.tickets) with ordinality as t) as t
    where t.ordinality = any (ords) order by t.ordinality);
  batch.job_units := case when batch.job_units is not null then array(
    select batch.job_units[o.ord] from unnest(ords) with ordinality as o (ord, n) order by o.n) end;
  return batch;
end
$$;

comment on function dibs._part_of is 'Return the part of a batch with the tickets at these places (`ords`, ascending).';

create or replace function dibs._admit_tickets(
  inout batch dibs.taken_batch, at timestamptz, out exhausted integer[])
language plpgsql volatile
as $$
declare
  v_needs dibs.job_needs[];
  v_ticket record;
  v_need_ids integer[];
  v_left integer[];
  v_place integer;
  v_short integer;
  v_admitted integer[] := '{}'::integer[];
  v_job_units dibs.held_units[] := '{}'::dibs.held_units[];
  v_blocked integer[] := '{}'::integer[];
  v_missing integer[] := '{}'::integer[];
  v_blocked_units integer[] := '{}'::integer[];
begin
  -- Read the needs of each ticket once: limits may be set and dropped while this claim goes on.
  v_needs := array(
    select row(n.need_ids, n.units)::dibs.job_needs from unnest(batch.tickets) with ordinality as t
    cross join lateral (
      select array_agg(n.need_id order by n.need_id) as need_ids, array_agg(n.units order by n.need_id) as units
      from dibs._job_needs(t.id) as n) as n
    order by t.ordinality);
  -- Take for all tickets together, limit by limit: what they need, or as much as there is.
  select coalesce(array_agg(n.need_id order by n.need_id), '{}'), array_agg(
    case when n.need_id < 0 then dibs._take_tokens(-n.need_id, n.units, at)
      else dibs._take_units(n.need_id, n.units, at) end
    order by n.need_id)
  into v_need_ids, v_left
  from (
    select u.need_id, least(sum(u.units), 1000000)::integer as units
    from unnest(v_needs) as t cross join lateral unnest(t.need_ids, t.units) as u (need_id, units)
    group by u.need_id order by u.need_id
  ) as n;
  -- Hand it out, ticket by ticket. A run holds its units; tokens are spent.
  for v_ticket in
    select t.ordinality::integer as ord, t.need_ids, t.units, h.held
    from unnest(v_needs) with ordinality as t
    cross join lateral (
      select row(array_agg(u.need_id order by u.need_id), array_agg(u.units order by u.need_id))::dibs.held_units
        as held
      from unnest(t.need_ids, t.units) as u (need_id, units) where u.need_id > 0) as h
    order by t.ordinality
  loop
    v_short := (
      select min(u.need_id) from unnest(v_ticket.need_ids, v_ticket.units) as u (need_id, units)
      where u.units > v_left[array_position(v_need_ids, u.need_id)]);
    if v_short is not null then
      v_blocked := v_blocked || v_ticket.ord;
      v_missing := v_missing || v_short;
      -- A ticket that is short of a token still needs its units of the same limit, if that has a concurrency.
      v_blocked_units := v_blocked_units
        || coalesce(v_ticket.units[array_position(v_ticket.need_ids, abs(v_short))], 1);
      continue;
    end if;
    for i in 1 .. coalesce(cardinality(v_ticket.need_ids), 0) loop
      v_place := array_position(v_need_ids, v_ticket.need_ids[i]);
      v_left[v_place] := v_left[v_place] - v_ticket.units[i];
    end loop;
    v_admitted := v_admitted || v_ticket.ord;
    v_job_units := v_job_units || v_ticket.held;
  end loop;
  perform case when l.need_id < 0 then dibs._return_tokens(-l.need_id, l.units)
    else dibs._return_units(l.need_id, l.units, at) end
  from unnest(v_need_ids, v_left) as l (need_id, units);
  if v_blocked <> '{}' then
    perform dibs._block_taken(dibs._part_of(batch, v_blocked), v_missing, v_blocked_units, at);
  end if;
  batch := dibs._part_of(batch, v_admitted);
  batch.job_units := v_job_units;
  exhausted := array(
    select l.need_id from unnest(v_need_ids, v_left) as l (need_id, units)
    where l.units = 0 and l.need_id = any (v_missing));
end
$$;

comment on function dibs._admit_tickets is
'Take what the tickets of a batch need of limits, in order. Keep the tickets that get all they need, with their units
(job_units), and move the others to blocked. `exhausted`: the needs (need_id, see the type job_needs) that kept a ticket
back and have nothing left.';

create or replace function dibs._block_taken(
  batch dibs.taken_batch, missing integer[], needed integer[], at timestamptz)
returns void
language plpgsql volatile
as $$
declare
  v_put bigint;
begin
  -- A job that runs alone in its group keeps its place there: the group waits with it.
  insert into dibs.blocked (id, due_at, expire_at, queue_id, run, charged, losses, priority, own_lease, history,
    fingerprint, group_key, cost, group_hold, limit_id, units, waits_for)
  select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority, t.own_lease, t.history,
    t.fingerprint, t.group_key, t.cost,
    case when batch.group_holds[t.ordinality] = 'exclusive' then dibs.group_hold 'exclusive' else 'none' end,
    abs(missing[t.ordinality]), needed[t.ordinality],
    coalesce(dibs._limit_name(abs(missing[t.ordinality])), 'a limit that is gone')
  from unnest(batch.tickets) with ordinality as t;
  get diagnostics v_put = row_count;
  perform dibs._check_moved(cardinality(batch.tickets), v_put);
  perform dibs._end_group_runs(
    array_agg(t.group_key), array_agg(dibs.group_hold 'shared'), array_agg(t.queue_id), null, at)
  from unnest(batch.tickets) with ordinality as t where batch.group_holds[t.ordinality] = 'shared' having count(*) > 0;
end
$$;

comment on function dibs._block_taken is
'Insert tickets that a claim took into blocked. missing[i]: the first need of ticket i that was not met (a need_id). needed[i]: how many units of that limit the job needs.';

create or replace function dibs._block_ready(
  of_queue integer, of_priority smallint, from_at timestamptz, from_id uuid, exhausted integer[], most integer,
  at timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_moved integer;
begin
  with short as materialized (
    select r.id, n.limit_id, n.units, n.name
    from (
      select r.id from dibs.ready as r
      where r.queue_id = of_queue and r.priority = of_priority and r.group_key is null
        and (r.due_at, r.id) >= (from_at, from_id) and r.due_at <= at and r.expire_at > at
      order by r.due_at, r.id limit most) as r
    cross join lateral (
      select abs(n.need_id) as limit_id, dibs._limit_name(abs(n.need_id)) as name, case when n.need_id > 0 then n.units
          else coalesce((select u.units from dibs._job_needs(r.id) as u where u.need_id = -n.need_id), 1) end as units
      from dibs._job_needs(r.id) as n where n.need_id = any (exhausted) order by n.need_id limit 1) as n
  ), pick as materialized (
    select s.limit_id, s.units, s.name, r.spot from short as s
    cross join lateral (select r.ctid as spot from dibs.ready as r where r.id = s.id for update skip locked) as r
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r.*, p.limit_id, p.units, p.name
  )
  insert into dibs.blocked (id, due_at, expire_at, queue_id, run, charged, losses, priority, own_lease, history,
    fingerprint, group_key, cost, limit_id, units, waits_for)
  select g.id, g.due_at, g.expire_at, g.queue_id, g.run, g.charged, g.losses, g.priority, g.own_lease, g.history,
    g.fingerprint, g.group_key, g.cost, g.limit_id, g.units, g.name
  from gone as g;
  get diagnostics v_moved = row_count;
  return v_moved;
end
$$;

comment on function dibs._block_ready is
'Move ready tickets that need an exhausted limit to blocked, so that later claims need not take and block them one by
one. Look at `most` ungrouped tickets of a queue and priority, from (from_at, from_id) on. `exhausted`: need_ids, see
_job_needs. Return how many were moved.';

create or replace function dibs._admit_ungrouped(
  inout batch dibs.taken_batch, priority smallint, want integer, inout moved integer)
language plpgsql volatile
as $$
declare
  v_first constant dibs.ready := batch.tickets[1];
  v_taken constant integer := cardinality(batch.tickets);
  v_admission constant record := dibs._admit_tickets(batch, batch.at);
begin
  batch := v_admission.batch;
  moved := moved + v_taken - cardinality(batch.tickets);
  if cardinality(batch.tickets) < want and v_admission.exhausted <> '{}' then
    moved := moved + dibs._block_ready((batch.queue).id, priority, v_first.due_at, v_first.id,
      v_admission.exhausted, greatest(dibs._constant('max_tickets_moved') - moved, 0)::integer, batch.at);
  end if;
end
$$;

comment on function dibs._admit_ungrouped is
'Admit tickets without a group. If fewer than `want` are admitted, also block the ready tickets behind them that need an
exhausted limit. Add the number of tickets moved to blocked to `moved`.';

create or replace function dibs._has_moved_enough(queue dibs.queue, moved integer) returns boolean
language plpgsql volatile
as $$
begin
  if moved >= dibs._constant('max_tickets_moved') and (queue).ring then
    perform pg_notify('dibs', (queue).id::text);
  end if;
  return moved >= dibs._constant('max_tickets_moved');
end
$$;

comment on function dibs._has_moved_enough is
'True if a claim has moved as many tickets to blocked as it may. Then ring, so that another claim looks at the rest.';
