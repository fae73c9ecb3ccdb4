-- Newest first: what claims of such a queue are made of. ARCHITECTURE.md, "Newest
-- first", says why a floor is of no use here, and what is in its place.

create or replace function dibs._read_holes(queue_id integer, top_us bigint) returns dibs.holes
language plpgsql volatile
as $$
declare
  v_text text := current_setting('dibs.holes_' || queue_id, true);
  v_body text := substr(v_text, position(':' in v_text) + 1);
  v_holes dibs.holes;
begin
  if v_text = dibs._sealed(v_body) then
    v_holes := v_body::dibs.holes;
  end if;
  if v_holes.near_step is null then
    select (h.holes).* into v_holes from dibs.floor_hint as h
    where h.queue_id = _read_holes.queue_id and (h.holes).near_step is not null
    order by h.swept_at desc limit 1;
    if not found then
      v_holes := row('{}', '{}', '{}', '{}', 0, 0, 0, 0);
    end if;
  end if;
  -- The clock was stepped back: what came since lies in such a hole.
  if top_us < any (v_holes.high_us) then
    v_holes := row('{}', '{}', '{}', '{}', 0, v_holes.sweep_took, v_holes.near_at, v_holes.near_step);
  end if;
  return v_holes;
end
$$;

comment on function dibs._read_holes is
'Where nothing is left in a newest-first queue: from the session, else from the newest hint, else nowhere.';

create or replace function dibs._gaps(holes dibs.holes, back bigint, at timestamptz)
returns table (level smallint, n integer, upto_at timestamptz, upto_id uuid, from_at timestamptz)
language sql stable
begin atomic
  with h as (
    select h.level, h.low_us, h.low_id, h.high_us,
      row_number() over (partition by h.level order by h.high_us desc)::integer as n
    from unnest((holes).levels, (holes).low_us, (holes).low_ids, (holes).high_us) as h (level, low_us, low_id, high_us)
    where back < 4000000000000000
  )
  select p.level::smallint, 0, at, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff',
    coalesce(dibs._from_micros(h.high_us - back), timestamptz '-infinity')
  from generate_series(0, 10) as p (level) left join h on h.level = p.level and h.n = 1
  union all
  select h.level, h.n, dibs._from_micros(h.low_us), h.low_id,
    coalesce(dibs._from_micros(b.high_us), timestamptz '-infinity')
  from h left join h as b on b.level = h.level and b.n = h.n + 1;
end;

comment on function dibs._gaps is
'What lies above, between and below the holes, for each priority, from the newest (n = 0) down; `back` looks that much
into the uppermost hole, or into all.';

create or replace function dibs._dig(
  holes dibs.holes, stops integer[], stop_us bigint[], stop_ids uuid[], top_us bigint) returns dibs.holes
language sql stable
begin atomic
  -- stops[level + 1] is the first gap that was not emptied, null if all were; stop_us and stop_ids the last ticket taken there.
  with old as (
    select h.level, h.low_us, h.low_id, h.high_us,
      row_number() over (partition by h.level order by h.high_us desc) as n
    from unnest((holes).levels, (holes).low_us, (holes).low_ids, (holes).high_us) as h (level, low_us, low_id, high_us)
  ), stop as (
    select (s.n - 1)::smallint as level, s.gap, s.us, s.id,
      -- Nothing was taken, or only what is so new that others may still be committed beside it.
      coalesce(s.gap = 0 and coalesce(s.us, top_us) >= top_us, false) as unchanged
    from unnest(stops, stop_us, stop_ids) with ordinality as s (gap, us, id, n)
  ), new as (
    select s.level, case when s.gap is null then 0 else coalesce(s.us, o.low_us) end as low_us,
      case when s.gap is null then uuid '00000000-0000-0000-0000-000000000000' else coalesce(s.id, o.low_id) end as low_id,
      top_us as high_us
    from stop as s left join old as o on o.level = s.level and o.n = s.gap
    where not s.unchanged
    union all
    select o.level, o.low_us, o.low_id, o.high_us from old as o join stop as s on s.level = o.level
    where s.unchanged or o.n > s.gap and o.high_us <= coalesce(s.us, o.high_us)
  ), kept as (
    -- The uppermost, where the next claims go on, and the widest seven others.
    select w.* from (
      select n.*, row_number() over (
        partition by n.level order by n.high_us = n.highest desc, n.high_us - n.low_us desc) as place
      from (select n.*, max(n.high_us) over (partition by n.level) as highest from new as n) as n
    ) as w where w.place <= 8
  )
  select row(coalesce(array_agg(k.level), '{}'), coalesce(array_agg(k.low_us), '{}'), coalesce(array_agg(k.low_id), '{}'),
    coalesce(array_agg(k.high_us), '{}'), (holes).sweep_at, (holes).sweep_took, (holes).near_at, (holes).near_step)::dibs.holes
  from kept as k;
end;

comment on function dibs._dig is 'The holes after a claim: what it emptied is one with the holes it touches.';

create or replace function dibs._write_holes(
  queue_id integer, holes dibs.holes, back bigint, began_us bigint) returns void
language plpgsql volatile
as $$
declare
  v_end bigint := dibs._micros(clock_timestamp());
  v_took bigint := v_end - began_us;
  v_unlocked boolean;
begin
  if back >= 4000000000000000 then
    if holes.sweep_took >= 2000 then
      v_unlocked := pg_advisory_unlock(20001, queue_id);
    end if;
    holes.sweep_took := v_took;
    holes.sweep_at := v_end + 20 * v_took;
    if v_took >= 2000 then
      insert into dibs.floor_hint (queue_id, swept_at, took, due_us, ids, holes)
      values (queue_id, dibs._from_micros(v_end), v_took * interval '1 microsecond', array_fill(0::bigint, array[11]),
        array_fill(uuid '00000000-0000-0000-0000-000000000000', array[11]), holes);
    end if;
  elsif back > 0 then
    holes.near_at := v_end + least(20 * v_took, 30000000);
    holes.near_step := (holes.near_step + 1) % 6;
  end if;
  perform set_config('dibs.holes_' || queue_id, dibs._sealed(holes::text), false);
end
$$;

comment on function dibs._write_holes is
'Remember in the session where nothing is left in a newest-first queue, and what looking back cost.';

create or replace function dibs._claim_newest(
  queues integer[], max integer, worker bigint, lease interval, token uuid, at timestamptz)
returns table (
  id uuid, held_by uuid, queue text, kind text, payload jsonb, body bytea, content_type text,
  headers jsonb, priority smallint, run integer, attempt smallint, max_attempts integer,
  losses smallint, due_at timestamptz, deadline timestamptz, claimed_at timestamptz, lease_until timestamptz
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_queue dibs.queue;
  v_began bigint;
  v_top bigint := dibs._micros(at) - 250000;
  v_holes dibs.holes;
  v_back bigint;
  v_left integer := _claim_newest.max;
  v_count integer;
  v_gap record;
  v_stops integer[];
  v_stop_us bigint[];
  v_stop_ids uuid[];
begin
  for v_queue in select q.* from dibs.queue as q where q.id = any (queues) order by random() loop
    exit when v_left = 0;
    v_began := dibs._micros(clock_timestamp());
    v_holes := dibs._read_holes(v_queue.id, v_top);
    v_back := dibs._look_back(v_queue.id, row(null, null, v_holes.sweep_at, v_holes.sweep_took, v_holes.near_at,
      v_holes.near_step)::dibs.floor, v_began);
    v_stops := array_fill(null::integer, array[11]);
    v_stop_us := array_fill(null::bigint, array[11]);
    v_stop_ids := array_fill(null::uuid, array[11]);
    for v_gap in
      select g.level, g.n, g.upto_at, g.upto_id, g.from_at
      from dibs._gaps(v_holes, v_back, at) as g
      cross join lateral (
        select r.due_at from dibs.ready as r
        where r.queue_id = v_queue.id and r.priority = g.level and r.lane is null and (r.due_at, r.id) < (g.upto_at, g.upto_id)
          and r.due_at >= g.from_at
        order by r.due_at desc, r.id desc limit 1) as r
      order by g.level desc, g.n
    loop
      if v_left = 0 then
        v_stops[v_gap.level + 1] := least(v_stops[v_gap.level + 1], v_gap.n);
        continue;
      end if;
      return query
      with pick as materialized (
        select r.ctid as place from dibs.ready as r
        where r.queue_id = v_queue.id and r.priority = v_gap.level and r.lane is null and (r.due_at, r.id) < (v_gap.upto_at, v_gap.upto_id)
          and r.due_at >= v_gap.from_at and r.expire_at > at
        order by r.due_at desc, r.id desc limit v_left
        for update skip locked
      ), gone as (
        delete from dibs.ready as r using pick as p where r.ctid = p.place returning r.*
      ), held as (
        insert into dibs.lease (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run,
          charged, losses, priority, own_lease, history, worker, fingerprint)
        select g.id, _claim_newest.token, g.due_at, g.expire_at, at,
          at + coalesce(_claim_newest.lease, g.own_lease,
            dibs._lease_for(v_queue.lease, v_queue.lease_growth, v_queue.lease_cap, g.charged + 1)),
          g.queue_id, g.run + 1, g.charged + 1, g.losses, g.priority, g.own_lease, g.history, _claim_newest.worker, g.fingerprint
        from gone as g
        returning lease.id, lease.run, lease.charged, lease.losses, lease.due_at, lease.lease_until
      ), noted as (
        select set_config('dibs.last', dibs._micros(h.due_at) || ' ' || h.id, true)
        from (select h.due_at, h.id from held as h order by h.due_at, h.id limit 1) as h
      )
      select h.id, _claim_newest.token, v_queue.name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers, v_gap.level, h.run, h.charged,
        coalesce(j.max_attempts, v_queue.max_attempts), h.losses, h.due_at, j.deadline, at,
        h.lease_until
      from noted as n cross join held as h
      -- OFFSET 0 keeps it a lookup by key, as in claim.
      left join lateral (
        select j.kind, j.payload, j.body, j.content_type, j.headers, j.max_attempts, j.deadline
        from dibs.job as j where j.id = h.id offset 0) as j on true;
      get diagnostics v_count = row_count;
      if v_count = v_left then
        v_stops[v_gap.level + 1] := v_gap.n;
        v_stop_us[v_gap.level + 1] := split_part(current_setting('dibs.last'), ' ', 1)::bigint;
        v_stop_ids[v_gap.level + 1] := split_part(current_setting('dibs.last'), ' ', 2)::uuid;
      end if;
      v_left := v_left - v_count;
    end loop;
    perform dibs._write_holes(v_queue.id, dibs._dig(v_holes, v_stops, v_stop_us, v_stop_ids, v_top), v_back, v_began);
  end loop;
end
$$;

comment on function dibs._claim_newest is
'Claim from newest-first queues: by priority, then the latest due time. The same moves as claim, from the other end.';
