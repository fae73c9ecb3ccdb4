-- Admission: of the tickets that a claim took, keep those whose jobs get all that they need of limits of kinds and
-- resources, and move the others to blocked.

create or replace function dibs._part_of(batch dibs.taken_batch, places integer[]) returns dibs.taken_batch
language plpgsql immutable
as $$
begin
  batch.tickets := array(
    select t.ticket from (select t as ticket, row_number() over () as place from unnest(batch.tickets) as t) as t
    where t.place = any (places) order by t.place);
  if batch.group_holds is not null then
    batch.group_holds := array(
      select h.hold from unnest(batch.group_holds) with ordinality as h (hold, place)
      where h.place = any (places) order by h.place);
  end if;
  if batch.job_units is not null then
    batch.job_units := array(
      select u.held from (select u as held, row_number() over () as place from unnest(batch.job_units) as u) as u
      where u.place = any (places) order by u.place);
  end if;
  return batch;
end
$$;

comment on function dibs._part_of is
'Return the part of a batch with the tickets at these places (1 is the first), in their order.';

create or replace function dibs._block_tickets(
  tickets dibs.ready[], group_holds dibs.group_hold[], short_of integer[], limit_units integer[], at timestamptz)
returns void
language plpgsql volatile
as $$
declare
  v_blocked bigint;
begin
  -- The limit's id is abs(need_id), whether the ticket is short of units or of a token. A job in strict order (its
  -- group lets one run at a time) still counts in its group, so that the group waits.
  insert into dibs.blocked (id, due_at, expire_at, queue_id, run, charged, losses, priority, own_lease, history,
    fingerprint, group_key, cost, group_hold, limit_id, units, waits_for)
  select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority, t.own_lease, t.history,
    t.fingerprint, t.group_key, t.cost,
    case when group_holds[t.ordinality] = 'exclusive' then dibs.group_hold 'exclusive' else 'none' end,
    abs(short_of[t.ordinality]), limit_units[t.ordinality],
    coalesce((select r.scope || ' ' || r.name from dibs.limit_rule as r where r.id = abs(short_of[t.ordinality])),
      'a limit that is gone')
  from unnest(tickets) with ordinality as t;
  get diagnostics v_blocked = row_count;
  perform dibs._check_moved(cardinality(tickets), v_blocked);
  -- Other jobs of groups count only while they run.
  perform dibs._end_group_runs(
    array_agg(t.group_key), array_agg(dibs.group_hold 'shared'), array_agg(t.queue_id), null, at)
  from unnest(tickets) with ordinality as t where group_holds[t.ordinality] = 'shared' having count(*) > 0;
end
$$;

comment on function dibs._block_tickets is
'Insert tickets that a claim took into blocked. short_of[i]: the need for which ticket i waits (a need_id, see the type
job_needs). limit_units[i]: how many units of that limit its job needs.';

create or replace function dibs._admit_tickets(inout batch dibs.taken_batch, out exhausted integer[])
language plpgsql volatile
as $$
declare
  v_needs dibs.job_needs[];
  v_need_ids integer[];  -- The needs of all tickets together, and
  v_left integer[];  -- how much of each is taken and not given to a ticket yet.
  v_ticket record;
  v_slot integer;
  v_short_of integer;
  v_admitted integer[] := '{}'::integer[];
  v_job_units dibs.held_units[] := '{}'::dibs.held_units[];
  v_blocked integer[] := '{}'::integer[];
  v_blocked_needs integer[] := '{}'::integer[];
  v_blocked_units integer[] := '{}'::integer[];
begin
  -- Read the needs of each ticket once: limits may be set and dropped while this claim goes on.
  v_needs := array(
    select (
      select row(array_agg(n.need_id order by n.need_id), array_agg(n.units order by n.need_id))::dibs.job_needs
      from dibs._job_needs(t.id) as n)
    from unnest(batch.tickets) with ordinality as t order by t.ordinality);
  -- Take what all tickets need together, limit by limit, or as much as there is.
  select coalesce(array_agg(n.need_id), '{}'), array_agg(
    case when n.need_id < 0 then dibs._take_tokens(-n.need_id, n.units, batch.at)
      else dibs._take_units(n.need_id, n.units, batch.at) end)
  into v_need_ids, v_left
  from (
    select u.need_id, least(sum(u.units), 1000000)::integer as units
    from unnest(v_needs) as t cross join lateral unnest(t.need_ids, t.units) as u (need_id, units)
    group by u.need_id order by u.need_id
  ) as n;
  -- Give it to the tickets in order. A ticket that is short of a need gets nothing. Units are held, tokens are spent.
  for v_ticket in
    select t.ordinality::integer as place, t.need_ids, t.units, (
      select row(array_agg(u.need_id), array_agg(u.units))::dibs.held_units
      from unnest(t.need_ids, t.units) as u (need_id, units) where u.need_id > 0) as held
    from unnest(v_needs) with ordinality as t order by t.ordinality
  loop
    v_short_of := (
      select min(u.need_id) from unnest(v_ticket.need_ids, v_ticket.units) as u (need_id, units)
      where u.units > v_left[array_position(v_need_ids, u.need_id)]);
    if v_short_of is not null then
      v_blocked := v_blocked || v_ticket.place;
      v_blocked_needs := v_blocked_needs || v_short_of;
      -- The units that it needs of that limit, also if it is short of a token.
      v_blocked_units := v_blocked_units
        || coalesce(v_ticket.units[array_position(v_ticket.need_ids, abs(v_short_of))], 1);
      continue;
    end if;
    for i in 1 .. coalesce(cardinality(v_ticket.need_ids), 0) loop
      v_slot := array_position(v_need_ids, v_ticket.need_ids[i]);
      v_left[v_slot] := v_left[v_slot] - v_ticket.units[i];
    end loop;
    v_admitted := v_admitted || v_ticket.place;
    v_job_units := v_job_units || v_ticket.held;
  end loop;
  perform case when l.need_id < 0 then dibs._return_tokens(-l.need_id, l.units)
    else dibs._return_units(l.need_id, l.units, batch.at) end
  from unnest(v_need_ids, v_left) as l (need_id, units) where l.units > 0;
  if v_blocked <> '{}' then
    perform dibs._block_tickets(b.tickets, b.group_holds, v_blocked_needs, v_blocked_units, b.at)
    from dibs._part_of(batch, v_blocked) as b;
    batch := dibs._part_of(batch, v_admitted);
  end if;
  batch.job_units := v_job_units;
  exhausted := array(
    select l.need_id from unnest(v_need_ids, v_left) as l (need_id, units)
    where l.units = 0 and l.need_id = any (v_blocked_needs));
end
$$;

comment on function dibs._admit_tickets is
'Take what the tickets of a batch need of limits, in order. Return the batch with the tickets that got all they need,
and with their units (job_units); move the others to blocked. `exhausted`: the needs (need_ids) of which nothing is
left and for which a ticket was blocked.';

create or replace function dibs._admit_ungrouped(
  inout batch dibs.taken_batch, of_priority smallint, want integer, inout moved integer)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_first constant dibs.ready := batch.tickets[1];
  v_taken constant integer := cardinality(batch.tickets);
  v_admission constant record := dibs._admit_tickets(batch);
  v_behind record;
begin
  batch := v_admission.batch;
  moved := moved + v_taken - cardinality(batch.tickets);
  if cardinality(batch.tickets) >= want or v_admission.exhausted = '{}' then
    return;
  end if;
  -- Find the ready tickets behind these that need an exhausted limit, too, and block them together. Otherwise later
  -- claims would take and block them one by one.
  with behind as materialized (
    select r.id, need.need_id, need.limit_units
    from (
      select r.id from dibs.ready as r
      where r.queue_id = (batch.queue).id and r.priority = of_priority and r.group_key is null
        and (r.due_at, r.id) >= (v_first.due_at, v_first.id) and r.due_at <= batch.at and r.expire_at > batch.at
      order by r.due_at, r.id limit greatest(dibs._constant('max_tickets_moved') - moved, 0)) as r
    cross join lateral (
      select need.need_id, need.limit_units from dibs._job_needs(r.id) as need
      where need.need_id = any (v_admission.exhausted) order by need.need_id limit 1) as need
  ), pick as materialized (
    select b.need_id, b.limit_units, r.spot from behind as b
    cross join lateral (select r.ctid as spot from dibs.ready as r where r.id = b.id for update skip locked) as r
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r as ticket, p.need_id, p.limit_units
  )
  select array_agg(g.ticket) as tickets, array_agg(g.need_id) as short_of, array_agg(g.limit_units) as units
  into v_behind from gone as g;
  if v_behind.tickets is not null then
    perform dibs._block_tickets(v_behind.tickets, null, v_behind.short_of, v_behind.units, batch.at);
    moved := moved + cardinality(v_behind.tickets);
  end if;
end
$$;

comment on function dibs._admit_ungrouped is
'Admit tickets without a group, which a claim took for `want` jobs of one priority. If fewer than `want` are admitted,
also block the ready tickets behind them that need an exhausted limit. `moved`: how many tickets this claim has moved to
blocked.';
