-- What jobs need of the limits of their kind and of the resources they name.

create or replace function dibs._job_needs(job_id uuid) returns table (id integer, units integer)
language sql stable
begin atomic
  select n.id, n.units
  from (
    select b.id, b.concurrency, b.rate, 1 as units from dibs.job as j
    cross join lateral (
      select b.id, b.concurrency, b.rate from dibs.limit_rule as b where b.is_set and b.scope = 'kind' and b.name = j.kind) as b
    where j.id = job_id
    union all
    select b.id, b.concurrency, b.rate, (r.value)::integer from dibs.job as j
    cross join lateral jsonb_each(j.resources) as r
    cross join lateral (
      select b.id, b.concurrency, b.rate from dibs.limit_rule as b
      where b.is_set and b.scope = 'resource' and b.name = r.key) as b
    where j.id = job_id and j.resources is not null
  ) as b
  cross join lateral (
    select b.id, b.units where b.concurrency is not null
    union all
    select -b.id, 1 where b.rate is not null
  ) as n (id, units);
end;

comment on function dibs._job_needs is
'What a job needs of limits, of its kind''s and of the resources it names: units, which it holds while it runs, and under the negative
number of a limit a start, which it spends of its rate.';

create or replace function dibs._take_needed(limit_id integer, want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
begin
  return case when limit_id < 0 then dibs._take_tokens(-limit_id, want, at) else dibs._take_units(limit_id, want, at) end;
end
$$;

comment on function dibs._take_needed is 'Take up to `want` of what jobs need of a limit; how much it got.';

create or replace function dibs._give_needed(limit_id integer, units integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  if limit_id < 0 then
    perform dibs._return_tokens(-limit_id, units);
  else
    perform dibs._return_units(limit_id, units, at);
  end if;
end
$$;

comment on function dibs._give_needed is 'Give back what was taken and is not needed.';

create or replace function dibs._held(ids integer[], units integer[]) returns dibs.held_units
language sql immutable
return (select row(array_agg(n.id order by n.id), array_agg(n.units order by n.id))::dibs.held_units
        from unnest(ids, units) as n (id, units) where n.id > 0);

comment on function dibs._held is 'What a job holds while it runs, of what it needs: units, and no starts.';

create or replace function dibs._limit_name(of_limit integer) returns text
language sql stable
return (select b.scope || ' ' || b.name from dibs.limit_rule as b where b.id = of_limit);

comment on function dibs._limit_name is 'What a limit is of, such as `kind render`.';

create or replace function dibs._admit_tickets(batch dibs.taken_batch, at timestamptz, out batches dibs.taken_batch[], out empty integer[])
language plpgsql volatile
as $$
declare
  v_asked dibs.held_units[];
  v_need record;
  v_ids integer[];
  v_free integer[];
  v_short integer;
  v_admitted integer[] := '{}'::integer[];
  v_blocked integer[] := '{}'::integer[];
  v_missing integer[] := '{}'::integer[];
  v_units integer[] := '{}'::integer[];
  v_needs dibs.held_units[] := '{}'::dibs.held_units[];
begin
  -- Read once: limits may be set and unset while this claim goes on.
  v_asked := array(
    select row(n.ids, n.units)::dibs.held_units from unnest(batch.tickets) with ordinality as t
    cross join lateral (
      select array_agg(n.id order by n.id) as ids, array_agg(n.units order by n.id) as units from dibs._job_needs(t.id) as n) as n
    order by t.ordinality);
  -- The limits that are needed, in their order, with as many of their units as are needed and free.
  select coalesce(array_agg(n.id order by n.id), '{}'), array_agg(dibs._take_needed(n.id, n.units, at) order by n.id)
  into v_ids, v_free
  from (
    select u.id, least(sum(u.units), 1000000)::integer as units
    from unnest(v_asked) as a cross join lateral unnest(a.limit_ids, a.limit_units) as u (id, units) group by u.id order by u.id
  ) as n;
  for v_need in
    select a.ordinality::integer as ord, dibs._held(a.limit_ids, a.limit_units) as needed, a.limit_ids as ids, a.limit_units as units
    from unnest(v_asked) with ordinality as a order by a.ordinality
  loop
    v_short := (
      select min(n.id) from unnest(v_need.ids, v_need.units) as n (id, units)
      where n.units > v_free[array_position(v_ids, n.id)]);
    if v_short is not null then
      v_blocked := v_blocked || v_need.ord;
      v_missing := v_missing || v_short;
      v_units := v_units || coalesce(v_need.units[array_position(v_need.ids, abs(v_short))], 1);
      continue;
    end if;
    for i in 1 .. coalesce(cardinality(v_need.ids), 0) loop
      v_free[array_position(v_ids, v_need.ids[i])] := v_free[array_position(v_ids, v_need.ids[i])] - v_need.units[i];
    end loop;
    v_admitted := v_admitted || v_need.ord;
    v_needs := v_needs || v_need.needed;
  end loop;
  perform dibs._give_needed(f.id, f.units, at) from unnest(v_ids, v_free) as f (id, units);
  if v_blocked <> '{}' then
    perform dibs._block_taken(dibs._part_of(batch, v_blocked), v_missing, v_units, at);
  end if;
  batch := dibs._part_of(batch, v_admitted);
  batch.job_units := v_needs;
  batches := array[batch];
  empty := array(select f.id from unnest(v_ids, v_free) as f (id, units) where f.units = 0 and f.id = any (v_missing));
end
$$;

comment on function dibs._admit_tickets is
'Of what a claim took, that which gets what it needs of limits, in order, with what it then holds. The others wait in blocked.
Says also which limits have nothing left for them.';

create or replace function dibs._part_of(batch dibs.taken_batch, ords integer[]) returns dibs.taken_batch
language plpgsql immutable
as $$
begin
  batch.group_holds := case when batch.group_holds is not null then array(
    select batch.group_holds[o.ord] from unnest(ords) with ordinality as o (ord, n) order by o.n) end;
  batch.tickets := array(
    select t.ticket from (
      select row(t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority, t.ring, t.own_lease, t.history,
        t.fingerprint, t.group_key, t.cost)::dibs.ready as ticket, t.ordinality
      from unnest(batch.tickets) with ordinality as t) as t
    where t.ordinality = any (ords) order by t.ordinality);
  batch.job_units := case when batch.job_units is not null then array(
    select batch.job_units[o.ord] from unnest(ords) with ordinality as o (ord, n) order by o.n) end;
  return batch;
end
$$;

comment on function dibs._part_of is 'Those tickets of a batch; `ords` says which, in order.';

create or replace function dibs._block_taken(batch dibs.taken_batch, missing integer[], units integer[], at timestamptz)
returns void
language plpgsql volatile
as $$
declare
  v_put bigint;
begin
  -- In strict order the group waits with its job.
  insert into dibs.blocked (id, due_at, expire_at, queue_id, run, charged, losses, priority, own_lease, history, fingerprint,
    group_key, cost, group_hold, limit_id, units, waits_for)
  select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority, t.own_lease, t.history, t.fingerprint,
    t.group_key, t.cost, 
    case when batch.group_holds[t.ordinality] = 'exclusive' then dibs.group_hold 'exclusive' else 'none' end, abs(missing[t.ordinality]),
    _block_taken.units[t.ordinality], coalesce(dibs._limit_name(abs(missing[t.ordinality])), 'a limit that is gone')
  from unnest(batch.tickets) with ordinality as t;
  get diagnostics v_put = row_count;
  perform dibs._check_moved(cardinality(batch.tickets), v_put);
  perform dibs._end_group_runs(array_agg(t.group_key), array_agg(dibs.group_hold 'shared'), array_agg(t.queue_id), null, at)
  from unnest(batch.tickets) with ordinality as t where batch.group_holds[t.ordinality] = 'shared' having count(*) > 0;
end
$$;

comment on function dibs._block_taken is
'Let tickets wait for the limit that has too little for them: its number (`missing`, negative for its rate) and how many `units` each needs.';

create or replace function dibs._block_ready(
  of_queue integer, of_priority smallint, from_at timestamptz, from_id uuid, empty integer[], most integer, at timestamptz)
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
      where r.queue_id = of_queue and r.priority = of_priority and r.group_key is null and (r.due_at, r.id) >= (from_at, from_id)
        and r.due_at <= at and r.expire_at > at
      order by r.due_at, r.id limit most) as r
    cross join lateral (
      select abs(n.id) as limit_id, dibs._limit_name(abs(n.id)) as name,
        case when n.id > 0 then n.units else coalesce((select u.units from dibs._job_needs(r.id) as u where u.id = -n.id), 1) end as units
      from dibs._job_needs(r.id) as n where n.id = any (empty) order by n.id limit 1) as n
  ), pick as materialized (
    select s.limit_id, s.units, s.name, r.spot from short as s
    cross join lateral (select r.ctid as spot from dibs.ready as r where r.id = s.id for update skip locked) as r
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r.*, p.limit_id, p.units, p.name
  )
  insert into dibs.blocked (id, due_at, expire_at, queue_id, run, charged, losses, priority, own_lease, history, fingerprint,
    group_key, cost, limit_id, units, waits_for)
  select g.id, g.due_at, g.expire_at, g.queue_id, g.run, g.charged, g.losses, g.priority, g.own_lease, g.history, g.fingerprint,
    g.group_key, g.cost, g.limit_id, g.units, g.name
  from gone as g;
  get diagnostics v_moved = row_count;
  return v_moved;
end
$$;

comment on function dibs._block_ready is
'Look at up to `most` tickets of a queue and priority, and let those wait that need a limit which was found empty: together, before
they are picked one claim after the other. How many.';

create or replace function dibs._admit_ungrouped(
  batch dibs.taken_batch, priority smallint, want integer, inout moved integer, out batches dibs.taken_batch[])
language plpgsql volatile
as $$
declare
  v_first constant dibs.ready := batch.tickets[1];
  v_admitted constant record := dibs._admit_tickets(batch, batch.at);
  v_left constant integer := want - cardinality(v_admitted.batches[1].tickets);
begin
  batches := v_admitted.batches;
  moved := moved + cardinality(batch.tickets) - want + v_left;
  if v_left > 0 and v_admitted.empty <> '{}' then
    moved := moved + dibs._block_ready((batch.queue).id, priority, v_first.due_at, v_first.id, v_admitted.empty,
      greatest(dibs._max_tickets_moved() - moved, 0), batch.at);
  end if;
end
$$;

comment on function dibs._admit_ungrouped is
'As _admit_tickets, for tickets without a group: what is behind them and needs a limit that was found empty waits, too. Counts how many
tickets were moved.';

create or replace function dibs._has_moved_enough(queue dibs.queue, moved integer) returns boolean
language plpgsql volatile
as $$
begin
  if moved >= dibs._max_tickets_moved() and (queue).ring then
    perform pg_notify('dibs', (queue).id::text);
  end if;
  return moved >= dibs._max_tickets_moved();
end
$$;

comment on function dibs._has_moved_enough is
'Whether a claim has moved as many tickets to blocked as it may. There may be more to look at, so it rings.';

create or replace function dibs._whole_units(resources jsonb) returns jsonb
language plpgsql immutable
as $$
begin
  return (select jsonb_object_agg(r.key, (r.value)::integer) from jsonb_each(resources) as r);
end
$$;

comment on function dibs._whole_units is 'Resources with their units as plain integers: 1.0 and 1e0 are 1.';

create or replace function dibs._check_resources(jobs jsonb) returns void
language plpgsql immutable
as $$
declare
  v_bad text;
begin
  select min(r.key) into v_bad
  from jsonb_array_elements(jobs) as e (job)
  cross join lateral jsonb_each(case when jsonb_typeof(e.job -> 'resources') = 'object' then e.job -> 'resources' else '{"": ""}' end) as r
  where e.job -> 'resources' is not null and jsonb_typeof(e.job -> 'resources') <> 'null'
    and (jsonb_typeof(r.value) <> 'number' or length(r.key) not between 1 and 200
      or case when jsonb_typeof(r.value) = 'number' then (r.value)::numeric not between 1 and 1000000 or (r.value)::numeric % 1 <> 0 end);
  if v_bad is not null then
    raise exception using errcode = 'DI010',
      message = format('a job needs whole units of a resource, from 1 to 1000000; %s is not that', coalesce(nullif(quote_literal(v_bad), ''''''), 'what was given')),
      hint = 'give resources as {"gpu": 1, "licence": 2}';
  end if;
  if exists (
    select from jsonb_array_elements(jobs) as e (job)
    where jsonb_typeof(e.job -> 'resources') = 'object'
      and (select count(*) from jsonb_object_keys(e.job -> 'resources')) > dibs._bound('resources')) then
    raise exception using errcode = 'DI010',
      message = format('a job names at most %s resources', dibs._bound('resources'));
  end if;
end
$$;

comment on function dibs._check_resources is 'Refuse resources that make no sense.';
