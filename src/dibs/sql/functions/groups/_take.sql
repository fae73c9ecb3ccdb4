-- How a claim serves the groups of a queue.

create or replace function dibs._turn_key(n bigint) returns uuid
language sql immutable strict parallel safe
return lpad(to_hex(n), 32, '0')::uuid;

comment on function dibs._turn_key is 'A turn''s number in the form floors are kept in.';

create or replace function dibs._turn_number(key uuid) returns bigint
language sql immutable strict parallel safe
return ('x' || right(replace(key::text, '-', ''), 16))::bit(64)::bigint;

comment on function dibs._turn_number is 'A turn''s number from its key.';

create or replace function dibs._take_turns(
  queue_id integer, is_noisy boolean, from_at timestamptz, from_n bigint, want integer, at timestamptz)
returns dibs.turn[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_turns dibs.turn[];
  v_more dibs.turn[];
  v_pings uuid[];
begin
  with pick as materialized (
    select t.ctid as spot from dibs.turn as t
    where t.queue_id = _take_turns.queue_id and t.is_noisy = _take_turns.is_noisy
      and (t.place, t.n) >= (from_at, from_n) and t.place <= at
    order by t.place, t.n limit want
    for update skip locked
  ), gone as (
    delete from dibs.turn as t using pick as p where t.ctid = p.spot returning t
  )
  select array_agg(g.t), array_agg((g.t).lane) filter (where (g.t).ping) into v_turns, v_pings from gone as g;
  if v_pings is null then
    return v_turns;
  end if;
  -- A ping stands for the lane's other turns, which may lie ahead.
  with pick as materialized (
    select s.spot from unnest(v_pings) as p (lane)
    cross join lateral (
      select t.ctid as spot from dibs.turn as t where t.lane = p.lane and (t.freed_at is null or t.freed_at <= at)
      for update skip locked) as s
  ), gone as (
    delete from dibs.turn as t using pick as p where t.ctid = p.spot returning t
  )
  select array_agg(g.t) into v_more from gone as g;
  return v_turns || v_more;
end
$$;

comment on function dibs._take_turns is 'Take the turns at the front of a queue''s rotation, and with a ping the others of its lane.';

create or replace function dibs._see_turns(
  queue_id integer, from_at timestamptz, from_n bigint, want integer, at timestamptz)
returns dibs.turn[]
language plpgsql volatile
as $$
begin
  return (
  select array_agg(s.t) from (
    select t from dibs.turn as t
    where t.queue_id = _see_turns.queue_id and t.is_noisy = false and (t.place, t.n) >= (from_at, from_n)
      -- What is past is known when the query has begun: others may have put turns back since we did.
      and t.place <= (select greatest(at, dibs.now()))
      and (select g.concurrency is null and g.rate is null from dibs.lane as g where g.id = t.lane)
    order by t.place, t.n limit want) as s);
end
$$;

comment on function dibs._see_turns is
'The turns of groups without limits that other claimers hold: their jobs may be taken anyway.';

create or replace function dibs._turns_beside(turns dibs.turn[], seen dibs.turn[]) returns dibs.turn[]
language sql immutable parallel safe
begin atomic
  select array_agg(s) from (
    select distinct on (s.lane) s from unnest(seen) as s
    where not exists (select from unnest(turns) as t where t.lane = s.lane)
    order by s.lane, s.n) as s;
end;

comment on function dibs._turns_beside is 'Of the turns that others hold, one for each lane that is not among ours.';

create or replace function dibs._own_first(visits dibs.visit[], seen dibs.turn[], out sorted dibs.visit[], out own integer)
language sql immutable parallel safe
begin atomic
  select array_agg(visits[v.i] order by v.is_seen, v.i), count(*) filter (where not v.is_seen)
  from (
    select i, exists (select from unnest(seen) as s where s.lane = (visits[i]).lane) as is_seen
    from generate_subscripts(visits, 1) as i) as v;
end;

comment on function dibs._own_first is 'The visits whose turns are ours in front of those of others, and how many these are.';

create or replace function dibs._merge_turns(turns dibs.turn[])
returns table (
  lane uuid, n bigint, place timestamptz, base_at timestamptz, floor_at timestamptz, floor_id uuid, floor_level smallint,
  swept_at timestamptz, tat timestamptz, next uuid, units integer, credit integer, idle smallint, is_noisy boolean)
language sql stable
begin atomic
  select t.lane, min(t.n), min(t.place), case when bool_and(t.base_at is not null) then min(t.base_at) end,
    (array_agg(t.floor_at order by t.n desc))[1], (array_agg(t.floor_id order by t.n desc))[1],
    -- Below the floor lies what was committed late: now and then a lane is looked at from its base on.
    case when count(*) = 1 and min(t.swept_at) > clock_timestamp() - interval '1 second' then min(t.floor_level) end,
    min(t.swept_at), max(t.tat), (array_agg(t.next) filter (where t.next is not null))[1],
    sum(t.units)::integer, max(t.credit), min(t.idle), bool_or(t.is_noisy)
  from unnest(turns) as t group by t.lane;
end;

comment on function dibs._merge_turns is 'One turn for each lane, of all that were taken.';

create or replace function dibs._overlap(start bigint, length bigint, whole bigint, wanted bigint) returns bigint
language sql immutable parallel safe
return greatest(0, least(start + length, wanted) - start) + greatest(0, least(wanted, start + length - whole));

comment on function dibs._overlap is 'How much of the first `wanted` of a ring lies in a piece of it, which may go on past its end.';

create or replace function dibs._plan_visits(turns dibs.turn[], want integer, skip boolean, is_shifted boolean, at timestamptz)
returns dibs.visit[]
language plpgsql volatile
as $$
declare
  -- Where turns of others count nobody remembers whose a part of a round was, so where it begins is left to chance.
  v_shift double precision := case when is_shifted then random() else 0 end;
begin
  return (
  select array_agg(row(
      s.lane, s.n, s.place, s.base_at, s.floor_at, s.floor_id, s.swept_at, s.tat, s.next, null,
      s.units, s.budget, case when s.last_part > 0 then s.last_quantum - s.last_part when s.first_round then s.credit end,
      s.last_part < s.last_quantum and (s.last_part > 0 or s.partial), s.floor_level, s.idle, s.noisy, s.weight, s.concurrency,
      s.rate, s.burst, s.debt,
      greatest(0, least(s.budget, case when s.concurrency is not null then s.units - s.debt end,
        dibs._tokens(s.rate, s.burst, s.tat, at))))::dibs.visit order by s.place, s.n)
  from (
    -- As if the turns went round one quantum at a time until as many jobs as wanted were handed out: whole rounds, and then
    -- a part of one. Who got nothing of that part, or not all of its quantum, keeps its place.
    select r.*, r.want < r.first_sum as first_round, r.want < r.first_sum or r.rest > 0 as partial,
      case when r.want < r.first_sum then r.quantum else r.weight end as last_quantum,
      case when r.want < r.first_sum then dibs._overlap(r.first_start, greatest(r.quantum, 0), r.first_sum, r.want)
        else dibs._overlap(r.weight_start, r.weight, r.weight_sum, r.rest) end::integer as last_part,
      case when r.want < r.first_sum
        then least(r.quantum, dibs._overlap(r.first_start, greatest(r.quantum, 0), r.first_sum, r.want))
        else least(r.quantum + r.rounds * r.weight + dibs._overlap(r.weight_start, r.weight, r.weight_sum, r.rest), 1000000000)
        end::integer as budget
    from (
      select q.*, (q.want - q.first_sum) / q.weight_sum as rounds,
        case when q.want >= q.first_sum then (q.want - q.first_sum) % q.weight_sum end as rest,
        (q.first_before + floor(v_shift * q.first_sum)::bigint) % nullif(q.first_sum, 0) as first_start,
        (q.weight_before + floor(v_shift * q.weight_sum)::bigint) % q.weight_sum as weight_start
      from (
        select f.*, _plan_visits.want::bigint as want,
          sum(greatest(f.quantum, 0)) over () as first_sum,
          sum(greatest(f.quantum, 0)) over w - greatest(f.quantum, 0) as first_before,
          sum(f.weight) over () as weight_sum, sum(f.weight) over w - f.weight as weight_before
        from (
          select c.*, case when c.credit > 0 then c.credit
            -- When all are overdrawn and nobody else waits, the rounds in which nobody gets anything are skipped.
            else coalesce(c.credit, 0) + c.weight * (1 + case when _plan_visits.skip then
              greatest(0, min(-coalesce(c.credit, 0) / c.weight) over ()) else 0 end) end::integer as quantum
          from (
            select m.*, g.weight, g.concurrency, g.rate, coalesce(g.burst, dibs._default_burst(g.rate)) as burst, g.debt, g.noisy
            from dibs._merge_turns(turns) as m
            cross join lateral (select g.* from dibs.lane as g where g.id = m.lane offset 0) as g
          ) as c
        ) as f
        window w as (order by f.place, f.n rows unbounded preceding)
      ) as q
    ) as r
  ) as s);
end
$$;

comment on function dibs._plan_visits is
'What the lanes whose turns were taken may have: their quanta by weight, at most their free units and what their rate lets through.';

create or replace function dibs._settle_debts(visits dibs.visit[], at timestamptz) returns dibs.visit[]
language plpgsql volatile
as $$
declare
  v_paid integer;
begin
  -- A concurrency was lowered: turns that come back pay for it before they let anything run.
  for i in 1 .. cardinality(visits) loop
    continue when visits[i].debt = 0 or visits[i].concurrency is null;
    update dibs.lane as g set debt = g.debt - least(g.debt, visits[i].units)
    from (
      select g.id, g.debt from dibs.lane as g where g.id = visits[i].lane for no key update skip locked
    ) as o
    where g.id = o.id
    returning o.debt - g.debt into v_paid;
    if v_paid is null then
      visits[i].allow := 0;
      visits[i].until := at + interval '5 milliseconds';
    else
      visits[i].units := visits[i].units - v_paid;
    end if;
  end loop;
  return visits;
end
$$;

comment on function dibs._settle_debts is 'Let the turns of lanes whose concurrency was lowered be used up.';

create or replace function dibs._follow_order(visits dibs.visit[], at timestamptz) returns dibs.visit[]
language plpgsql volatile
as $$
declare
  v_job record;
begin
  for i in 1 .. cardinality(visits) loop
    continue when visits[i].next is null;
    select r.due_at, r.id, r.priority into v_job from dibs.ready as r
    where r.id = visits[i].next and r.lane = visits[i].lane and r.expire_at > at;
    if not found then
      visits[i].next := null;
    elsif v_job.due_at > at then
      visits[i].allow := 0;
      visits[i].until := v_job.due_at;
    else
      visits[i].allow := least(visits[i].allow, 1);
      visits[i].floor_at := v_job.due_at;
      visits[i].floor_id := v_job.id;
      visits[i].floor_level := v_job.priority;
    end if;
  end loop;
  return visits;
end
$$;

comment on function dibs._follow_order is
'Where the order is strict, a group waits for the job that began; when it was cancelled or expired, the next one''s turn has come.';

create or replace function dibs._mark_noisy_lanes(queue dibs.queue) returns void
language plpgsql volatile
as $$
declare
  v_name text := 'dibs.sidelined_' || (queue).id;
  v_real bigint := dibs._micros(clock_timestamp());
begin
  -- Looked at once a second by each connection: it counts all that runs.
  if abs(v_real - coalesce(nullif(current_setting(v_name, true), ''), '0')::bigint) < 1000000 then
    return;
  end if;
  perform set_config(v_name, v_real::text, false);
  update dibs.lane as g set noisy = true
  from (
    select o.id from (
      select l.lane, count(*) as jobs, sum(count(*)) over () as total from dibs.lease as l
      where l.queue_id = (queue).id group by l.lane
    ) as r
    cross join lateral (
      select g.id from dibs.lane as g where g.id = r.lane and not g.noisy for no key update skip locked) as o
    where r.jobs > 1 and r.jobs > r.total * (queue).noisy_share
  ) as o
  where g.id = o.id;
end
$$;

comment on function dibs._mark_noisy_lanes is 'Mark the groups that have more than their share of a queue''s running jobs: they are served last.';

create or replace function dibs._claim_turns(
  of_queue dibs.queue, new_token uuid, max integer, worker bigint, lease interval, slots integer[], at timestamptz)
returns table (
  id uuid, token uuid, queue_name text, kind text, payload jsonb, body bytea, content_type text,
  headers jsonb, priority smallint, run integer, attempt smallint, max_attempts integer,
  losses smallint, due_at timestamptz, deadline timestamptz, claimed_at timestamptz, lease_until timestamptz
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_queue dibs.queue := of_queue;
  v_left integer := _claim_turns.max;
  v_width integer := _claim_turns.max;
  v_top bigint := dibs._micros(at) - 250000;
  v_began bigint := dibs._micros(clock_timestamp());
  v_floor dibs.floor := dibs._read_floor(-v_queue.id, v_top);
  v_back bigint := dibs._look_back(-v_queue.id, v_floor, v_began);
  v_from timestamptz := dibs._from_micros(v_floor.due_us[1] - v_back);
  v_from_n bigint := case when v_back = 0 then dibs._turn_number(v_floor.ids[1]) else 0 end;
  v_mark bigint := (select s.last_value from dibs.turn_n_seq as s);
  -- First the rotation; then what other claimers hold, where nothing is limited; then the noisy groups.
  v_phase integer := 1;
  v_turns dibs.turn[];
  v_seen dibs.turn[];
  v_own integer;
  -- Whether we have put turns back ourselves; until then those in sight are of others.
  v_put boolean := false;
  v_visits dibs.visit[];
  v_first_us bigint;
  v_first_id uuid;
  v_got record;
  v_each record;
begin
  if v_queue.noisy_share is not null then
    perform dibs._mark_noisy_lanes(v_queue);
  end if;
  -- The floor is the first turn there is, also if another holds it: that one may put it back where it was.
  select dibs._micros(t.place), dibs._turn_key(t.n) into v_first_us, v_first_id from dibs.turn as t
  where t.queue_id = v_queue.id and t.is_noisy = false and (t.place, t.n) >= (v_from, v_from_n) and t.place <= at
  order by t.place, t.n limit 1;
  while v_left > 0 loop
    v_turns := case when v_phase = 2 then dibs._see_turns(v_queue.id, v_from, v_from_n, v_width, at)
      else dibs._take_turns(v_queue.id, v_phase = 3, case when v_phase = 1 then v_from else '-infinity' end,
        case when v_phase = 1 then v_from_n else 0 end, v_width, at) end;
    if v_phase = 1 and cardinality(v_turns) = v_left and not v_queue.has_job_limits then
      v_put := true;
      select e.* into v_each from dibs._visit_each(v_queue, v_turns, new_token, _claim_turns.worker, _claim_turns.lease,
        _claim_turns.slots, at) as e;
      if v_each.ids is not null then
        v_left := v_left - cardinality(v_each.ids);
        return query
        select k.id, new_token, v_queue.name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers,
          k.level, k.run, k.charge, coalesce(j.max_attempts, v_queue.max_attempts), k.losses, k.due_at, j.deadline, at, k.until
        from unnest(v_each.ids, v_each.levels, v_each.runs, v_each.charges, v_each.losses, v_each.dues, v_each.ends)
          as k (id, level, run, charge, losses, due_at, until)
        left join lateral (
          select j.kind, j.payload, j.body, j.content_type, j.headers, j.max_attempts, j.deadline
          from dibs.job as j where j.id = k.id offset 0) as j on true;
      end if;
      if v_each.others is null then
        if v_each.ids is not null then
          v_width := v_left;
        elsif (select min(t.n) from unnest(v_turns) as t) > v_mark then
          v_phase := 2;
        else
          v_width := least(v_width * 4, 10000);
        end if;
        continue;
      end if;
      v_turns := v_each.others;
    end if;
    -- Count turns held by other claimers too; otherwise the groups we can see would split the whole claim.
    v_seen := case when v_phase = 1 and not v_put and v_turns is not null and cardinality(v_turns) < v_width then
      dibs._turns_beside(v_turns, dibs._see_turns(v_queue.id, v_from, v_from_n, v_width, at)) end;
    v_visits := case when v_turns is not null then
      dibs._plan_visits(v_turns || v_seen, v_left, cardinality(v_turns || v_seen) < v_width, v_phase = 2 or v_seen is not null, at) end;
    v_own := cardinality(v_visits);
    if v_seen is not null then
      select o.sorted, o.own into v_visits, v_own from dibs._own_first(v_visits, v_seen) as o;
    end if;
    if v_visits is null then
      exit when v_phase = 3 or v_phase = 2 and v_queue.noisy_share is null;
      v_phase := v_phase + 1;
      v_mark := (select s.last_value from dibs.turn_n_seq as s);
      continue;
    end if;
    if v_phase <> 2 and (select bool_or(v.debt <> 0 or v.next is not null) from unnest(v_visits) as v) then
      v_visits := dibs._follow_order(dibs._settle_debts(v_visits, at), at);
    end if;

    with level as materialized (
      select l.level from unnest(v_queue.group_priorities) as l (level)
    ), lanes as materialized (
      select v.*, v.ordinality::integer as ord from unnest(v_visits) with ordinality as v where v.allow > 0
    ), pick as materialized (
      select p.spot, l.ord, case when l.concurrency is null then 0 when l.concurrency = 1 then 2 else 1 end as turn
      from lanes as l
      cross join lateral (
        select c.spot from (
          select x.spot, sum(x.cost) over (rows unbounded preceding) - x.cost as before
          from (
            select r.spot, r.cost from level as p
            cross join lateral (
              select r.ctid as spot, coalesce(r.cost, 1) as cost from dibs.ready as r
              where r.queue_id = v_queue.id and r.lane = l.lane and r.priority = p.level
                and (r.due_at, r.id) >= (
                  case when p.level = l.floor_level then l.floor_at else coalesce(l.base_at, '-infinity') end,
                  case when p.level = l.floor_level then l.floor_id else '00000000-0000-0000-0000-000000000000' end)
                and r.due_at <= at and r.expire_at > at and (l.next is null or r.id = l.next)
              order by r.due_at, r.id limit l.allow
              for update skip locked
            ) as r
            limit l.allow
          ) as x
        ) as c
        where c.before < l.budget
      ) as p
      limit v_left
    ), gone as (
      delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r, p.ord, p.turn
    )
    select array_agg(g.r) as tickets, array_agg(g.ord) as ords, array_agg(g.turn::smallint) as turns,
      array_agg(coalesce((g.r).cost, 1)) as costs, array_agg((g.r).due_at) as dues, array_agg((g.r).id) as ids,
      array_agg((g.r).priority) as levels, null::text[] as slots, null::integer[] as limits
    into v_got from gone as g;
    if v_got.tickets is not null then
      if v_queue.has_job_limits then
        select a.* into v_got.slots, v_got.limits from dibs._admit_tickets(v_got.tickets, _claim_turns.slots, at) as a;
      elsif _claim_turns.slots is not null then
        v_got.slots := array_fill(_claim_turns.slots::text, array[cardinality(v_got.ids)]);
      end if;
      v_left := v_left - dibs._lease_tickets(v_queue, v_got.tickets, v_got.turns, v_got.slots, v_got.limits, new_token,
        _claim_turns.worker, _claim_turns.lease, at);
    end if;
    if v_phase <> 2 then
      v_put := true;
      perform dibs._put_turns(v_queue, v_visits[: v_own], v_got.ords, v_got.costs, v_got.dues, v_got.ids, v_got.levels, at);
    end if;
    if v_got.ids is not null then
      return query select h.* from dibs._held_jobs(v_queue, v_got.tickets, v_got.limits, new_token, at) as h;
      v_width := v_left;
    elsif v_phase <> 2 and cardinality(v_turns) >= v_width then
      -- These have nothing now; more are looked at together.
      v_width := least(v_width * 4, 10000);
    elsif v_phase = 2 or (select min(v.n) from unnest(v_visits[: v_own]) as v) > v_mark then
      -- Nothing more is to be had here: all that is left are turns we put back ourselves.
      exit when v_phase = 3 or v_phase = 2 and v_queue.noisy_share is null;
      v_phase := v_phase + 1;
      v_mark := (select s.last_value from dibs.turn_n_seq as s);
    end if;
  end loop;

  if v_first_us >= v_top then
    v_floor.due_us[1] := v_top;
    v_floor.ids[1] := '00000000-0000-0000-0000-000000000000';
  elsif v_left = 0 or (v_first_us, v_first_id) > (v_floor.due_us[1], v_floor.ids[1]) then
    v_floor.due_us[1] := v_first_us;
    v_floor.ids[1] := v_first_id;
  end if;
  perform dibs._write_floor(-v_queue.id, v_floor, v_floor.due_us, v_floor.ids,
    array[v_first_us is not null, true, true, true, true, true, true, true, true, true, true], v_top, v_back, v_began, 1);
end
$$;

comment on function dibs._claim_turns is
'Take up to `max` jobs of a queue''s groups, in the rotation of their turns.';

create or replace function dibs._shuffled(places integer[]) returns integer[]
language sql volatile
return case when cardinality(places) = 1 then places else array(select p from unnest(places) as p order by random()) end;

comment on function dibs._shuffled is 'In any order, so that no queue with groups is always the first.';

create or replace function dibs._plain_share(
  queues dibs.queue[], floors bigint[], backs bigint[], grouped integer[], want integer, at timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_only_groups boolean := cardinality(queues) = cardinality(grouped);
  v_turns integer;
begin
  if not exists (
    select from unnest(floors) with ordinality as f (due_us, n)
    cross join lateral (
      select from dibs.ready as r
      where r.queue_id = (queues[(f.n - 1) / 11 + 1]).id and r.priority = ((f.n - 1) % 11)::smallint and r.lane is null
        and r.due_at >= dibs._from_micros(f.due_us - backs[(f.n - 1) / 11 + 1]) and r.due_at <= at
      limit 1) as r) then
    return 0;
  end if;
  -- A queue without groups gets half; jobs without a group count as one group among those that wait, up to a hundred.
  v_turns := case when v_only_groups then (
    select count(*) from (
      select from unnest(grouped) as q
      cross join lateral (
        select from dibs.turn as t where t.queue_id = (queues[q]).id and t.is_noisy = false and t.place <= at
          and t.place >= at - interval '1 minute' limit 100) as t limit 100) as t)
    else 1 end;
  return least(want, floor(want / (1.0 + v_turns) + random()));
end
$$;

comment on function dibs._plain_share is
'How many of a claim''s jobs are kept for those without a group, when there are both.';
