-- What jobs need of limits, and the claim of a queue whose jobs need something.

create or replace function dibs._admit_tickets(tickets dibs.ready[], held integer[], at timestamptz,
  out slots text[], out limits integer[])
language plpgsql volatile
as $$
declare
  v_needs record;
  v_ids integer[];
  v_free integer[];
  v_at integer;
  v_missing integer;
  v_got integer[];
begin
  -- The limits that matter, in their order, with as many of their units as can be had and are needed.
  select array_agg(n.id order by n.id), array_agg(dibs._take_units(n.id, n.units, at) order by n.id) into v_ids, v_free
  from (
    select n.id, least(sum(n.units), 1000000)::integer as units
    from unnest(tickets) as t cross join lateral dibs._needs(t.id) as n group by n.id order by n.id
  ) as n;
  slots := array_fill(held::text, array[cardinality(tickets)]);
  limits := array_fill(null::integer, array[cardinality(tickets)]);
  if v_ids is null then
    return;
  end if;
  for v_needs in
    select t.ordinality::integer as ord, array_agg(n.id order by n.id) as ids, array_agg(n.units order by n.id) as units
    from unnest(tickets) with ordinality as t cross join lateral dibs._needs(t.id) as n
    group by t.ordinality order by t.ordinality
  loop
    v_missing := null;
    v_got := held;
    for i in 1 .. cardinality(v_needs.ids) loop
      v_at := array_position(v_ids, v_needs.ids[i]);
      if v_free[v_at] < v_needs.units[i] then
        v_missing := v_needs.ids[i];
        exit;
      end if;
      v_got := v_got || v_needs.ids[i] || v_needs.units[i];
    end loop;
    if v_missing is not null then
      limits[v_needs.ord] := v_missing;
      continue;
    end if;
    for i in 1 .. cardinality(v_needs.ids) loop
      v_at := array_position(v_ids, v_needs.ids[i]);
      v_free[v_at] := v_free[v_at] - v_needs.units[i];
    end loop;
    slots[v_needs.ord] := v_got::text;
  end loop;
  perform dibs._give_units(f.id, f.units, at) from unnest(v_ids, v_free) as f (id, units);
end
$$;

comment on function dibs._admit_tickets is
'Which of the tickets get what they need of limits, in order, and what they then hold; for the others the limit that has too little.';

create or replace function dibs._needs(job_id uuid) returns table (id integer, units integer)
language sql stable
begin atomic
  select b.id, 1 from dibs.job as j
  cross join lateral (select b.id from dibs.limit_rule as b where b.scope = 'kind' and b.name = j.kind and b.concurrency is not null) as b
  where j.id = job_id
  union all
  select b.id, r.value::integer from dibs.job as j
  cross join lateral jsonb_each_text(j.resources) as r
  cross join lateral (select b.id from dibs.limit_rule as b where b.scope = 'resource' and b.name = r.key and b.concurrency is not null) as b
  where j.id = job_id and j.resources is not null;
end;

comment on function dibs._needs is 'What a job needs of limits: of its kind''s, and of the resources it names.';

create or replace function dibs._note_needs(jobs jsonb) returns void
language plpgsql volatile
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
  update dibs.queue as q set has_job_limits = true
  where not q.has_job_limits and q.name in (
    select e.job ->> 'queue' from jsonb_array_elements(jobs) as e (job) where jsonb_typeof(e.job -> 'resources') = 'object');
end
$$;

comment on function dibs._note_needs is 'Refuse resources that make no sense, and note that a queue has jobs which name some.';

create or replace function dibs._lease_tickets(
  queue dibs.queue, tickets dibs.ready[], turns smallint[], slots text[], limits integer[], new_token uuid, worker bigint,
  lease interval, at timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_held integer;
begin
  insert into dibs.lease (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run,
    charged, losses, priority, own_lease, history, worker, fingerprint, lane, cost, turn, slots)
  select t.id, new_token, t.due_at, t.expire_at, at,
    at + coalesce(_lease_tickets.lease, t.own_lease, dibs._lease_for((queue).lease, (queue).lease_growth, (queue).lease_cap, t.charged + 1)),
    t.queue_id, t.run + 1, t.charged + 1, t.losses, t.priority, t.own_lease, t.history, _lease_tickets.worker, t.fingerprint,
    t.lane, t.cost, coalesce(turns[t.ordinality], 0), slots[t.ordinality]::integer[]
  from unnest(tickets) with ordinality as t where limits[t.ordinality] is null;
  get diagnostics v_held = row_count;
  if v_held < cardinality(tickets) then
    perform dibs._block_tickets(tickets, turns, limits, at);
  end if;
  return v_held;
end
$$;

comment on function dibs._lease_tickets is 'Lease the tickets a claim took, and let those wait for which a limit has no unit. Returns how many it leased.';

create or replace function dibs._block_tickets(tickets dibs.ready[], turns smallint[], limits integer[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- In strict order the group waits with its job.
  insert into dibs.blocked (id, due_at, expire_at, queue_id, run, charged, losses, priority, own_lease, history, fingerprint,
    lane, cost, turn, limit_id, units, waits_for)
  select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority, t.own_lease, t.history, t.fingerprint,
    t.lane, t.cost, case when turns[t.ordinality] = 2 then 2 else 0 end, b.id,
    coalesce((select n.units from dibs._needs(t.id) as n where n.id = b.id), 1), b.scope || ' ' || b.name
  from unnest(tickets) with ordinality as t join dibs.limit_rule as b on b.id = limits[t.ordinality];
  perform dibs._free_units(array_agg(t.lane), array_agg(turns[t.ordinality]), array_agg(t.queue_id), null, at)
  from unnest(tickets) with ordinality as t where limits[t.ordinality] is not null and turns[t.ordinality] = 1 having count(*) > 0;
end
$$;

comment on function dibs._block_tickets is 'Let the tickets wait for which a limit has no unit; their groups may go on with others.';

create or replace function dibs._held_jobs(
  queue dibs.queue, tickets dibs.ready[], times timestamptz[], limits integer[], new_token uuid, lease interval)
returns table (
  id uuid, token uuid, queue_name text, kind text, payload jsonb, body bytea, content_type text,
  headers jsonb, priority smallint, run integer, attempt smallint, max_attempts integer,
  losses smallint, due_at timestamptz, deadline timestamptz, claimed_at timestamptz, lease_until timestamptz)
language sql stable
begin atomic
  select t.id, new_token, (queue).name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers, t.priority,
    t.run + 1, (t.charged + 1)::smallint, coalesce(j.max_attempts, (queue).max_attempts), t.losses, t.due_at, j.deadline, times[t.ordinality],
    times[t.ordinality] + coalesce(_held_jobs.lease, t.own_lease, dibs._lease_for((queue).lease, (queue).lease_growth, (queue).lease_cap, t.charged + 1))
  from unnest(tickets) with ordinality as t
  left join lateral (
    select j.kind, j.payload, j.body, j.content_type, j.headers, j.max_attempts, j.deadline
    from dibs.job as j where j.id = t.id offset 0) as j on true
  where limits[t.ordinality] is null
  order by t.ordinality;
end;

comment on function dibs._held_jobs is 'The jobs that were just leased, as a claim returns them.';

create or replace function dibs._claim_limited(
  queue dibs.queue, level smallint, from_at timestamptz, from_id uuid, new_token uuid, max integer, worker bigint,
  lease interval, held integer[], at timestamptz)
returns table (
  id uuid, token uuid, queue_name text, kind text, payload jsonb, body bytea, content_type text,
  headers jsonb, priority smallint, run integer, attempt smallint, max_attempts integer,
  losses smallint, due_at timestamptz, deadline timestamptz, claimed_at timestamptz, lease_until timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_left integer := _claim_limited.max;
  v_tickets dibs.ready[];
  v_admitted record;
begin
  while v_left > 0 loop
    with pick as materialized (
      select r.ctid as place from dibs.ready as r
      where r.queue_id = (_claim_limited.queue).id and r.priority = level and r.lane is null
        and (r.due_at, r.id) >= (from_at, from_id) and r.due_at <= at and r.expire_at > at
      order by r.due_at, r.id limit v_left
      for update skip locked
    ), gone as (
      delete from dibs.ready as r using pick as p where r.ctid = p.place returning r
    )
    select array_agg(g.r) into v_tickets from gone as g;
    exit when v_tickets is null;
    from_at := v_tickets[1].due_at;
    from_id := v_tickets[1].id;
    perform set_config('dibs.first', dibs._micros(from_at) || ' ' || from_id, true);
    select a.* into v_admitted from dibs._admit_tickets(v_tickets, held, at) as a;
    v_left := v_left - dibs._lease_tickets(_claim_limited.queue, v_tickets, null, v_admitted.slots, v_admitted.limits, new_token,
      _claim_limited.worker, _claim_limited.lease, at);
    return query select h.* from dibs._held_jobs(_claim_limited.queue, v_tickets,
      array_fill(at, array[cardinality(v_tickets)]), v_admitted.limits, new_token, _claim_limited.lease) as h;
  end loop;
end
$$;

comment on function dibs._claim_limited is
'Take tickets of one queue and priority whose jobs may need slots; those that get none wait in blocked.';
