-- claim: ready → lease. ARCHITECTURE.md, "The floor", says what makes it immune to dead rows.

create or replace function dibs.claim(
  queues text[],
  max integer default 1,
  worker bigint default null,
  lease interval default null
)
returns table (
  id uuid, token uuid, queue text, kind text, payload jsonb, body bytea, content_type text,
  headers jsonb, priority smallint, run integer, attempt smallint, max_attempts integer,
  losses smallint, due_at timestamptz, deadline timestamptz, claimed_at timestamptz, lease_until timestamptz
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_began bigint := dibs._micros(clock_timestamp());
  v_token uuid := gen_random_uuid();
  v_left integer := claim.max;
  v_queues dibs.queue[] := '{}'::dibs.queue[];
  v_floors dibs.floor[] := '{}'::dibs.floor[];
  v_due bigint[] := '{}'::bigint[];
  v_ids uuid[] := '{}'::uuid[];
  v_back bigint[] := '{}'::bigint[];
  v_queue dibs.queue;
  v_floor dibs.floor;
  v_head record;
  v_count integer;
  v_first_us bigint;
  v_first_id uuid;
  v_top bigint := dibs._micros(v_now) - 250000;
  v_seen boolean[];
  v_newest integer[];
  v_grouped integer[];
  v_plain integer := 0;
  v_checked boolean := false;
  v_gate dibs.gate;
  v_gates dibs.gate[];
  v_allowed integer[] := '{}'::integer[];
  v_share integer;
  v_slots integer[];
begin
  if current_setting('transaction_isolation') <> 'read committed' or coalesce(cardinality(queues), 0) = 0
    or claim.max is null or claim.max not between 1 and 10000
    or lease not between interval '100 milliseconds' and interval '7 days' then
    perform dibs._refuse_claim(queues, claim.max, lease);
  end if;
  for v_queue in
    select q.* from dibs.queue as q where q.name = any (queues) and q.paused_at is null order by q.id
  loop
    if v_queue.is_confined then
      perform dibs._check_queues(array[v_queue.name]);
    end if;
    if v_queue.shards is not null or v_queue.shard_of is not null then
      perform dibs._fence_shard(v_queue, claim.worker, v_now);
    end if;
    -- Groups and limits have their own order, so a queue that has them is served oldest first.
    if v_queue.newest_first and not v_queue.has_limit and not v_queue.has_job_limits and not v_queue.has_groups then
      v_newest := v_newest || v_queue.id;
      continue;
    end if;
    v_share := claim.max;
    if v_queue.has_limit then
      select cardinality(v_queues) + 1, g.* into v_gate from dibs._enter_gate(v_queue, claim.max, v_now) as g;
      v_share := v_gate.allowed;
      if v_share = 0 then
        perform dibs._leave_gate(v_gate.limit_id, v_gate.has_slots, 0, v_gate.tat, 0, v_now);
        continue;
      end if;
      v_gates := v_gates || v_gate;
    end if;
    v_allowed := v_allowed || v_share;
    v_checked := v_checked or v_queue.has_job_limits;
    v_floor := dibs._read_floor(v_queue.id, v_top);
    v_queues := v_queues || v_queue;
    if v_queue.has_groups then
      v_grouped := v_grouped || cardinality(v_queues);
    end if;
    v_floors := v_floors || v_floor;
    v_due := v_due || v_floor.due_us;
    v_ids := v_ids || v_floor.ids;
    v_back := v_back || dibs._look_back(v_queue.id, v_floor, v_began);
  end loop;
  v_seen := array_fill(false, array[cardinality(v_due)]);
  -- Two orders cannot be merged, so which goes first is left to chance and neither starves.
  if v_newest is not null and random() < 0.5 then
    return query select n.* from dibs._claim_newest(v_newest, v_left, claim.worker, claim.lease, v_token, v_now) as n;
    get diagnostics v_count = row_count;
    v_left := v_left - v_count;
    v_newest := null;
    v_began := dibs._micros(clock_timestamp());
  end if;
  if v_checked then
    v_due := dibs._unblock(array(select (q).id from unnest(v_queues) as q), v_now, v_due);
  end if;

  -- Groups first, but for the share of what has none; and again at the end, if that came to less.
  if v_grouped is not null and v_left > 0 then
    v_plain := dibs._plain_share(v_queues, v_due, v_back, v_grouped, v_left, v_now);
    foreach v_count in array dibs._shuffled(v_grouped) loop
      v_share := least(v_left - v_plain, v_allowed[v_count]);
      return query
      select c.* from dibs._claim_groups(v_queues[v_count], v_token, v_share, claim.worker, claim.lease,
        dibs._gate_units(v_gates, v_count), v_now) as c;
      get diagnostics v_share = row_count;
      v_left := v_left - v_share;
      v_allowed[v_count] := v_allowed[v_count] - v_share;
    end loop;
  end if;

  -- One look at the head of every queue and priority; n counts them, eleven to a queue.
  for v_head in
    select l.n::integer as n, (l.n - 1)::integer / 11 + 1 as q, ((l.n - 1) % 11)::smallint as priority,
      l.from_at, l.from_id
    from (
      select f.n, dibs._from_micros(f.due_us - b.back) as from_at,
        case when b.back = 0 then f.id else uuid '00000000-0000-0000-0000-000000000000' end as from_id
      from unnest(v_due, v_ids) with ordinality as f (due_us, id, n)
      cross join lateral (select v_back[(f.n - 1) / 11 + 1] as back) as b
    ) as l
    cross join lateral (
      select r.due_at from dibs.ready as r
      where r.queue_id = (v_queues[(l.n - 1) / 11 + 1]).id and r.priority = ((l.n - 1) % 11)::smallint and r.lane is null
        and (r.due_at, r.id) >= (l.from_at, l.from_id) and r.due_at <= v_now
      order by r.due_at, r.id limit 1
    ) as r
    order by 3 desc, r.due_at
  loop
    v_seen[v_head.n] := true;
    v_share := least(v_left, v_allowed[v_head.q]);
    continue when v_share = 0;
    v_queue := v_queues[v_head.q];
    v_slots := case when v_gates is not null then dibs._gate_units(v_gates, v_head.q) end;
    if v_queue.has_job_limits then
      return query
      select c.* from dibs._claim_limited(v_queue, v_head.priority, v_head.from_at, v_head.from_id, v_token, v_share,
        claim.worker, claim.lease, v_slots, v_now) as c;
    else
    return query
    with pick as materialized (
      select r.ctid as place from dibs.ready as r
      where r.queue_id = v_queue.id and r.priority = v_head.priority and r.lane is null
        and (r.due_at, r.id) >= (v_head.from_at, v_head.from_id) and r.due_at <= v_now
        and r.expire_at > v_now
      order by r.due_at, r.id limit v_share
      for update skip locked
    ), gone as (
      delete from dibs.ready as r using pick as p where r.ctid = p.place
      returning r.id, r.due_at, r.expire_at, r.queue_id, r.run, r.charged, r.losses, r.priority, r.own_lease, r.history, r.fingerprint
    ), held as (
      insert into dibs.lease (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run,
        charged, losses, priority, own_lease, history, worker, fingerprint, slots)
      select g.id, v_token, g.due_at, g.expire_at, v_now,
        v_now + coalesce(claim.lease, g.own_lease,
          dibs._lease_for(v_queue.lease, v_queue.lease_growth, v_queue.lease_cap, g.charged + 1)),
        g.queue_id, g.run + 1, g.charged + 1, g.losses, g.priority, g.own_lease, g.history, claim.worker, g.fingerprint, v_slots
      from gone as g
      returning lease.id, lease.run, lease.charged, lease.losses, lease.due_at, lease.lease_until
    ), noted as (
      select set_config('dibs.first', dibs._micros(h.due_at) || ' ' || h.id, true) from held as h limit 1
    )
    select h.id, v_token, v_queue.name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers, v_head.priority,
      h.run, h.charged, coalesce(j.max_attempts, v_queue.max_attempts), h.losses, h.due_at, j.deadline, v_now, h.lease_until
    from noted as n cross join held as h
    -- OFFSET 0 keeps it a lookup by key: planned on empty partitions, a join could read them whole later.
    left join lateral (
      select j.kind, j.payload, j.body, j.content_type, j.headers, j.max_attempts, j.deadline
      from dibs.job as j where j.id = h.id offset 0) as j on true;
    end if;
    get diagnostics v_count = row_count;
    continue when v_count = 0;
    v_left := v_left - v_count;
    v_allowed[v_head.q] := v_allowed[v_head.q] - v_count;
    v_first_us := split_part(current_setting('dibs.first'), ' ', 1)::bigint;
    v_first_id := split_part(current_setting('dibs.first'), ' ', 2)::uuid;
    -- The floor is the first row taken, and no floor rises above a quarter of a second ago. A look-back lowers it only
    -- when it came back full: then there may be more down there, which the next claims walk through.
    if v_first_us >= v_top then
      v_due[v_head.n] := v_top;
      v_ids[v_head.n] := '00000000-0000-0000-0000-000000000000';
    elsif v_left = 0 or (v_first_us, v_first_id) > (v_due[v_head.n], v_ids[v_head.n]) then
      v_due[v_head.n] := v_first_us;
      v_ids[v_head.n] := v_first_id;
    end if;
  end loop;

  for q in 1 .. cardinality(v_queues) loop
    perform dibs._write_floor((v_queues[q]).id, v_floors[q], v_due[q * 11 - 10 : q * 11],
      v_ids[q * 11 - 10 : q * 11], v_seen[q * 11 - 10 : q * 11], v_top, v_back[q],
      v_began, cardinality(v_queues));
  end loop;
  if v_plain > 0 and v_left > 0 then
    foreach v_count in array dibs._shuffled(v_grouped) loop
      v_share := least(v_left, v_allowed[v_count]);
      return query
      select c.* from dibs._claim_groups(v_queues[v_count], v_token, v_share, claim.worker, claim.lease,
        dibs._gate_units(v_gates, v_count), v_now) as c;
      get diagnostics v_share = row_count;
      v_left := v_left - v_share;
      v_allowed[v_count] := v_allowed[v_count] - v_share;
    end loop;
  end if;
  if v_gates is not null then
    perform dibs._leave_gate(g.limit_id, g.has_slots, g.allowed, g.tat, g.allowed - v_allowed[g.place], v_now)
    from unnest(v_gates) as g;
  end if;
  if v_newest is not null and v_left > 0 then
    return query select n.* from dibs._claim_newest(v_newest, v_left, claim.worker, claim.lease, v_token, v_now) as n;
  end if;
end
$$;

comment on function dibs.claim is
'Take up to `max` due jobs of the queues named, by priority and then due time, and hold each under a lease; of several
queues with jobs of one priority, the one whose oldest has waited longest is served first. A newest-first queue gives the
latest due first. The groups of a queue take turns; its jobs without a group count as one more. All carry the token that
proves it. `lease` overrides the policy''s. Works in READ COMMITTED only.';
