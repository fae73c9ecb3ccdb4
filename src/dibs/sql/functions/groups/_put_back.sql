-- How a visit to a lane ends.

create or replace function dibs._tally_visits(
  visits integer, ords integer[], costs integer[], dues timestamptz[], ids uuid[], levels smallint[],
  out counts bigint[], out sums bigint[], out first_dues timestamptz[], out first_ids uuid[], out first_levels smallint[])
language plpgsql stable
set enable_nestloop = off
set enable_hashjoin = on
as $$
begin
  select array_agg(coalesce(s.taken, 0) order by v.ord), array_agg(coalesce(s.spent, 0) order by v.ord),
    array_agg(s.due_at order by v.ord), array_agg(s.id order by v.ord), array_agg(s.level order by v.ord)
  into counts, sums, first_dues, first_ids, first_levels
  from generate_series(1, visits) as v (ord)
  left join (
    select distinct on (k.ord) k.ord, count(*) over w as taken, sum(k.cost) over w as spent, k.due_at, k.id, k.level
    from unnest(ords, costs, dues, ids, levels) as k (ord, cost, due_at, id, level)
    window w as (partition by k.ord)
    order by k.ord, k.level, k.due_at, k.id
  ) as s on s.ord = v.ord;
end
$$;

comment on function dibs._tally_visits is
'What each visit took: how many, for how much, and the first ticket of its last level.';

create or replace function dibs._put_turns(
  queue dibs.queue, visits dibs.visit[], ords integer[], costs integer[], dues timestamptz[], ids uuid[],
  levels smallint[], at timestamptz)
returns void
language plpgsql volatile
as $$
declare
  v_real timestamptz := clock_timestamp();
  v_top timestamptz := at - interval '250 milliseconds';
  v_nil constant uuid := '00000000-0000-0000-0000-000000000000'::uuid;
  v_took record;
  v_locked boolean[];
  v_units integer[];
  v_bases timestamptz[];
  v_nexts uuid[];
begin
  select t.* into v_took from dibs._tally_visits(cardinality(visits), ords, costs, dues, ids, levels) as t;

  -- Only under its lane's lock may a turn leave the present: no enqueue is under way then, and the next statement sees all.
  -- It is tried for lanes that ran out, and now and then to move a lane's base on.
  with level as materialized (
    select l.level from unnest(queue.group_priorities) as l (level)
  )
  select array_agg(g.id is not null order by v.ordinality) into v_locked
  from rows from (unnest(visits), unnest(v_took.counts), unnest(v_took.sums), unnest(v_took.first_dues), unnest(v_took.first_ids),
      unnest(v_took.first_levels)) with ordinality
    as v (lane, n, place, base_at, floor_at, floor_id, swept_at, tat, next, until, units, budget, keep, front, floor_level,
      idle, is_noisy, weight, concurrency, rate, burst, debt, allow, taken, spent, first_at, first_id, first_level, ordinality)
  left join lateral (
    select g.id from dibs.lane as g
    where g.id = v.lane and case
      when v.allow = 0 then false
      when v.taken < v.allow and v.spent < v.budget then true
      when v.floor_level is null and coalesce(v.swept_at, '-infinity') < v_real - interval '1 second' then true
      -- Or its last ticket was taken: nothing follows the first that was.
      else not exists (
        select from level as p
        cross join lateral (
          select from dibs.ready as r
          where r.queue_id = queue.id and r.lane = v.lane and r.priority = p.level
            and (r.due_at, r.id) >= (
              case when p.level = v.first_level then v.first_at else coalesce(v.base_at, '-infinity') end,
              case when p.level = v.first_level then v.first_id else v_nil end)
          order by r.due_at, r.id limit 1) as r) end
    for update skip locked) as g on true;
  if true = any (v_locked) and (select bool_or(v.concurrency is not null) from unnest(visits) as v) then
    with gone as (
      delete from dibs.turn as t using (
        select s.spot, v.ord
        from rows from (unnest(visits), unnest(v_locked)) with ordinality
          as v (lane, n, place, base_at, floor_at, floor_id, swept_at, tat, next, until, units, budget, keep, front, floor_level,
            idle, is_noisy, weight, concurrency, rate, burst, debt, allow, locked, ord)
        cross join lateral (
          -- Turns older than a lane's own come to it by themselves; but units are put together, wherever they are.
          select t.ctid as spot from dibs.turn as t
          where t.lane = v.lane and t.n > case when v.concurrency is null then v.n else 0 end
            and (t.freed_at is null or t.freed_at <= at)
          for update skip locked) as s
        where v.locked
      ) as s
      where t.ctid = s.spot
      returning s.ord, t.units, t.base_at, t.next
    )
    select array_agg(g.units order by g.ord), array_agg(g.base_at order by g.ord), array_agg(g.next order by g.ord)
    into v_units, v_bases, v_nexts
    from (
      select g.ord, sum(g.units)::integer as units,
        case when bool_or(g.base_at is null and g.units is not null) then '-infinity' else min(g.base_at) end as base_at,
        (array_agg(g.next) filter (where g.next is not null))[1] as next
      from (
        select g.ord, g.units, g.base_at, g.next from gone as g
        union all select n, null, null, null from generate_series(1, cardinality(visits)) as n
      ) as g
      group by g.ord) as g;
  end if;

  with level as materialized (
    select l.level from unnest(queue.group_priorities) as l (level)
  ), visit as materialized (
    select v.*, coalesce(v.next, v.other_next) as waits_for, least(v.base_at, v.other_base) as base,
      v.units - case when v.concurrency is null then 0 else v.taken end + coalesce(v.other_units, 0) as free,
      v.allow > 0 and v.taken < v.allow and v.spent < v.budget as short,
      case when v.rate is not null and v.taken > 0
        then greatest(v.tat, at) + dibs._token_time(v.rate, v.taken) else v.tat end as new_tat
    from rows from (unnest(visits), unnest(v_took.counts), unnest(v_took.sums), unnest(v_took.first_dues), unnest(v_took.first_ids),
        unnest(v_took.first_levels), unnest(v_locked), unnest(v_units), unnest(v_bases), unnest(v_nexts)) with ordinality
      as v (lane, n, place, base_at, floor_at, floor_id, swept_at, tat, next, until, units, budget, keep, front, floor_level,
        idle, is_noisy, weight, concurrency, rate, burst, debt, allow, taken, spent, first_at, first_id, first_level,
        locked, other_units, other_base, other_next, ord)
  ), looked as materialized (
    select v.*, h.due_at as head, h.live_at as live_head,
      v.locked and h.due_at is null as is_empty,
      v.locked and h.due_at is null and v.waits_for is null and (v.new_tat is null or v.new_tat <= at)
        and (v.concurrency is null or v.free = v.concurrency and v.debt = 0) as over
    from visit as v
    left join lateral (
      select min(h.due_at) as due_at,
        min(case when h.expire_at > at then h.due_at else (
          select r.due_at from dibs.ready as r
          where r.queue_id = queue.id and r.lane = v.lane and r.priority = p.level
            and r.due_at >= h.due_at and r.expire_at > at
          order by r.due_at, r.id limit 1) end) as live_at
      from level as p
      cross join lateral (
        select r.due_at, r.expire_at from dibs.ready as r
        where r.queue_id = queue.id and r.lane = v.lane and r.priority = p.level
          and r.due_at >= coalesce(v.base, '-infinity')
        order by r.due_at, r.id limit 1
      ) as h
    ) as h on v.locked
  ), collected as (
    delete from dibs.lane as g where g.id = any (array(select l.lane from looked as l where l.over))
  ), calmed as (
    update dibs.lane as g set noisy = false
    where g.id = any (array(select l.lane from looked as l where l.is_noisy and l.locked and not l.over
      and (l.live_head is null or l.live_head > at)))
  )
  insert into dibs.turn (n, queue_id, lane, place, base_at, floor_at, floor_id, floor_level, swept_at, freed_at, tat, next, units,
    credit, idle, is_noisy, ping)
  select case when p.front and p.spent = 0 and not p.short then p.n else nextval('dibs.turn_n_seq') end, queue.id, p.lane,
    greatest(case
      when p.until is not null then p.until
      when p.free = 0 and p.concurrency is not null or p.short and (not p.locked or p.waits_for is not null) then at + interval '5 milliseconds' * (1 << p.idle)
      -- Only its leases can bring it to life again, or a ping; this is for the case that neither came through.
      when p.is_empty then greatest(p.new_tat, at + interval '10 seconds')
      -- All there is waits to be expired.
      when p.locked and p.live_head is null then at + interval '1 second'
      when p.locked and p.live_head > at then p.live_head
      when p.front and p.spent <= p.budget then p.place
      else at
    end, case when p.rate is not null then p.new_tat - dibs._token_time(p.rate, p.burst - 1) end),
    case when p.locked then least(p.head, v_top) else p.base end,
    case when p.first_at is null then p.floor_at else least(p.first_at, v_top) end,
    case when p.first_at is null then p.floor_id when p.first_at > v_top then v_nil else p.first_id end,
    case when p.locked or p.other_units is not null then null when p.first_at is null then p.floor_level
      else p.first_level end,
    case when p.locked then v_real else p.swept_at end, case when p.concurrency is not null then at end, p.new_tat, p.waits_for, p.free,
    case when p.short then null when p.spent > p.budget then p.budget - p.spent + coalesce(p.keep, 0) when p.front then p.keep
      when p.budget < 0 then p.budget end,
    case when p.free = 0 and p.concurrency is not null or p.short and not p.locked then least(p.idle + 1, 8) else 0 end,
    p.is_noisy and not (p.locked and (p.live_head is null or p.live_head > at)),
    p.free = 0 and p.concurrency is not null
  from looked as p
  -- A ping that found no free unit stays while there are some which it could not take.
  where not p.over and (p.concurrency is null or p.free <> 0 or p.taken = 0 and exists (
    select from dibs.turn as t where t.lane = p.lane and t.units <> 0))
  order by p.ord;
end
$$;

comment on function dibs._put_turns is
'Put the turns back that a claim took: at the end, at the front with what is left of the quantum when the claim was full, or at the
time of the lane''s next job; and collect the lanes that are empty.';

create or replace function dibs._visit_each(
  queue dibs.queue, turns dibs.turn[], new_token uuid, worker bigint, lease interval, slots integer[], at timestamptz,
  out others dibs.turn[], out ids uuid[], out levels smallint[], out runs integer[], out charges smallint[], out losses smallint[],
  out dues timestamptz[], out ends timestamptz[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_real timestamptz := clock_timestamp();
  v_top timestamptz := at - interval '250 milliseconds';
  v_nil constant uuid := '00000000-0000-0000-0000-000000000000'::uuid;
  v_simple boolean[];
  v_ords integer[];
  v_dues timestamptz[];
  v_ids uuid[];
  v_levels smallint[];
  v_locked tid[];
  v_over integer[];
  v_all integer[] := array(select n from generate_series(1, cardinality(turns)) as n);
begin
  with level as materialized (
    select l.level from unnest(queue.group_priorities) as l (level)
  ), turn as materialized (
    select t.*, case
        when t.credit is not null or t.next is not null or t.ping then false
        when not queue.has_group_policy and queue.noisy_share is null then true
        else coalesce((
          select g.weight = 1 and g.concurrency is null and g.rate is null and not g.noisy
          from dibs.lane as g where g.id = t.lane), false) end as is_simple
    from unnest(turns) with ordinality as t
  ), pick as materialized (
    select t.ordinality::integer as ord, r.spot
    from turn as t
    cross join lateral (
      select r.spot from level as p
      cross join lateral (
        select r.ctid as spot from dibs.ready as r
        where r.queue_id = queue.id and r.lane = t.lane and r.priority = p.level
          and (r.due_at, r.id) >= (
            case when p.level = t.floor_level and t.swept_at > v_real - interval '1 second' then t.floor_at
              else coalesce(t.base_at, '-infinity') end,
            case when p.level = t.floor_level and t.swept_at > v_real - interval '1 second' then t.floor_id else v_nil end)
          and r.due_at <= at and r.expire_at > at
        order by r.due_at, r.id limit 1
        for update skip locked) as r
      limit 1) as r
    where t.is_simple
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r.*, p.ord
  ), due as (
    select g.*, at + coalesce(_visit_each.lease, g.own_lease,
        dibs._lease_for(queue.lease, queue.lease_growth, queue.lease_cap, g.charged + 1)) as until
    from gone as g
  ), held as (
    insert into dibs.lease (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run,
      charged, losses, priority, own_lease, history, worker, fingerprint, lane, cost, slots)
    select d.id, new_token, d.due_at, d.expire_at, at, d.until, d.queue_id, d.run + 1, d.charged + 1, d.losses,
      d.priority, d.own_lease, d.history, _visit_each.worker, d.fingerprint, d.lane, d.cost, _visit_each.slots
    from due as d
  )
  select array_agg(d.id), array_agg(d.priority), array_agg(d.run + 1), array_agg((d.charged + 1)::smallint), array_agg(d.losses),
    array_agg(d.due_at), array_agg(d.until), array_agg(d.ord), (select array_agg(t.is_simple order by t.ordinality) from turn as t)
  into ids, levels, runs, charges, losses, dues, ends, v_ords, v_simple
  from due as d;
  if v_ords = v_all then
    v_dues := dues;
    v_ids := ids;
    v_levels := levels;
  else
    v_dues[cardinality(turns)] := null;
    v_ids[cardinality(turns)] := null;
    v_levels[cardinality(turns)] := null;
    for i in 1 .. coalesce(cardinality(v_ords), 0) loop
      v_dues[v_ords[i]] := dues[i];
      v_ids[v_ords[i]] := ids[i];
      v_levels[v_ords[i]] := levels[i];
    end loop;
  end if;

  with level as materialized (
    select l.level from unnest(queue.group_priorities) as l (level)
  )
  select array_agg(g.spot order by t.ord) into v_locked
  from rows from (unnest(turns), unnest(v_simple), unnest(v_dues), unnest(v_ids), unnest(v_levels)) with ordinality
    as t (n, place, lane, base_at, floor_at, floor_id, swept_at, freed_at, tat, next, queue_id, units, credit, floor_level,
        idle, is_noisy, ping, ring,
        is_simple, first_at, first_id, first_level, ord)
  left join lateral (
    select g.ctid as spot from dibs.lane as g
    where t.is_simple and g.id = t.lane and (t.first_id is null or t.swept_at < v_real - interval '1 second' or not exists (
      select from level as p
      cross join lateral (
        select from dibs.ready as r
        where r.queue_id = queue.id and r.lane = t.lane and r.priority = p.level
          and (r.due_at, r.id) >= (
            case when p.level = t.first_level then t.first_at else coalesce(t.base_at, '-infinity') end,
            case when p.level = t.first_level then t.first_id else v_nil end)
        order by r.due_at, r.id limit 1) as r))
    for update skip locked) as g on true;

  with level as materialized (
    select l.level from unnest(queue.group_priorities) as l (level)
  ), over as materialized (
    select t.spot, t.ord::integer as ord
    from rows from (unnest(turns), unnest(v_locked)) with ordinality
      as t (n, place, lane, base_at, floor_at, floor_id, swept_at, freed_at, tat, next, queue_id, units, credit, floor_level,
        idle, is_noisy, ping, ring, spot, ord)
    where t.spot is not null and not exists (
      select from level as p
      cross join lateral (
        select from dibs.ready as r
        where r.queue_id = queue.id and r.lane = t.lane and r.priority = p.level and r.due_at >= coalesce(t.base_at, '-infinity')
        limit 1) as r)
  ), collected as (
    delete from dibs.lane as g using over as o where g.ctid = o.spot
  )
  select array_agg(o.ord) into v_over from over as o;
  if v_over = v_all then
    return;
  end if;

  with level as materialized (
    select l.level from unnest(queue.group_priorities) as l (level)
  ), looked as materialized (
    select t.*, h.due_at as head, h.live_at as live_head
    from rows from (unnest(turns), unnest(v_simple), unnest(v_dues), unnest(v_ids), unnest(v_levels), unnest(v_locked)) with ordinality
      as t (n, place, lane, base_at, floor_at, floor_id, swept_at, freed_at, tat, next, queue_id, units, credit, floor_level,
        idle, is_noisy, ping, ring,
        is_simple, first_at, first_id, first_level, spot, ord)
    left join lateral (
      select min(h.due_at) as due_at,
        min(case when h.expire_at > at then h.due_at else (
          select r.due_at from dibs.ready as r
          where r.queue_id = queue.id and r.lane = t.lane and r.priority = p.level
            and r.due_at >= h.due_at and r.expire_at > at
          order by r.due_at, r.id limit 1) end) as live_at
      from level as p
      cross join lateral (
        select r.due_at, r.expire_at from dibs.ready as r
        where r.queue_id = queue.id and r.lane = t.lane and r.priority = p.level
          and r.due_at >= coalesce(t.base_at, '-infinity')
        order by r.due_at, r.id limit 1) as h
    ) as h on t.spot is not null
    where t.is_simple and t.ord <> all (coalesce(v_over, '{}'))
  )
  insert into dibs.turn (queue_id, lane, place, base_at, floor_at, floor_id, floor_level, swept_at, idle)
  select queue.id, l.lane,
    case
      when l.first_id is null and l.spot is null then at + interval '5 milliseconds' * (1 << l.idle)
      when l.spot is not null and l.live_head is null then at + interval '1 second'
      when l.spot is not null then greatest(l.live_head, at)
      else at
    end,
    case when l.spot is not null then least(l.head, v_top) else l.base_at end,
    case when l.first_id is null then l.floor_at else least(l.first_at, v_top) end,
    case when l.first_id is null then l.floor_id when l.first_at > v_top then v_nil else l.first_id end,
    case when l.spot is not null then null when l.first_id is null then l.floor_level else l.first_level end,
    case when l.spot is not null then v_real else l.swept_at end,
    case when l.first_id is null and l.spot is null then least(l.idle + 1, 8) else 0 end
  from looked as l
  order by l.ord;
  if false = any (v_simple) then
    others := array(select turns[i] from generate_subscripts(turns, 1) as i where not v_simple[i]);
  end if;
end
$$;

comment on function dibs._visit_each is
'Take one job from each of many lanes that have no limits and the usual weight, and put their turns back: what a claim mostly does when
more groups wait than it wants jobs. Turns that need more thought are left in `others`.';
