-- How lanes follow their policy, and how they are repaired.

create or replace function dibs._check_group(name text) returns void
language plpgsql immutable
as $$
begin
  if length(name) not between 1 and 200 or name ~ '[[:cntrl:]]' then
    raise exception using errcode = 'DI010',
      message = format('a group''s name has 1 to 200 characters and no control characters, not %L', left(name, 80));
  end if;
end
$$;

comment on function dibs._check_group is 'Refuse a name no group can have.';

create or replace function dibs._held_turns(lane uuid) returns bigint
language sql stable
return (select count(*) from dibs.lease as l where l.lane = _held_turns.lane and l.turn > 0)
  + (select count(*) from dibs.blocked as b where b.lane = _held_turns.lane and b.turn > 0);

comment on function dibs._held_turns is 'How many of a lane''s turns are out with its jobs.';

create or replace function dibs._sync_lanes(queue_id integer) returns void
language plpgsql volatile
as $$
declare
  v_lane record;
begin
  update dibs.queue as q set has_group_policy = exists (select from dibs.group_policy as p where p.queue_id = q.id)
  where q.id = _sync_lanes.queue_id;
  for v_lane in
    select g.id, g.queue_id, g.concurrency as had, coalesce(p.weight, 1) as weight, p.concurrency, p.rate, p.burst
    from dibs.lane as g
    left join lateral (
      select p.* from dibs.group_policy as p
      where p.queue_id = g.queue_id and p.lane in (g.id, '00000000-0000-0000-0000-000000000000')
      order by p.lane desc limit 1) as p on true
    where g.queue_id = _sync_lanes.queue_id
      and (g.weight, g.concurrency, g.rate, g.burst) is distinct from (coalesce(p.weight, 1), p.concurrency, p.rate, p.burst)
    order by g.id
    for no key update of g
  loop
    perform dibs._change_lane(v_lane.id, v_lane.queue_id, v_lane.had, v_lane.concurrency, dibs.now());
    update dibs.lane as g
    set weight = v_lane.weight, concurrency = v_lane.concurrency, rate = v_lane.rate, burst = v_lane.burst
    where g.id = v_lane.id;
  end loop;
end
$$;

comment on function dibs._sync_lanes is 'Let the lanes of a queue follow its policy.';

create or replace function dibs._change_lane(lane uuid, queue_id integer, had integer, gets integer, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_more integer := coalesce(gets, 0) - coalesce(had, 0);
begin
  if had is not distinct from gets then
    return;
  elsif had is null then
    -- Those that run already count; one that is ending at this moment is let go.
    with running as materialized (
      select l.id from dibs.lease as l where l.lane = _change_lane.lane and l.turn = 0 order by l.id for update skip locked
    )
    update dibs.lease as l set turn = case gets when 1 then 2 else 1 end from running as r where l.id = r.id;
    v_more := gets - dibs._held_turns(lane)
      - (select coalesce(sum(t.units), 0) from dibs.turn as t where t.lane = _change_lane.lane);
  elsif gets is null then
    v_more := 0;
    update dibs.lane as g set debt = 0 where g.id = _change_lane.lane;
  end if;
  if v_more < 0 then
    -- Fewer take effect as leases end.
    update dibs.lane as g set debt = g.debt - v_more where g.id = _change_lane.lane;
    v_more := 0;
  elsif v_more > 0 then
    update dibs.lane as g set debt = g.debt - least(g.debt, v_more) from (select g.debt from dibs.lane as g where g.id = _change_lane.lane) as o
    where g.id = _change_lane.lane returning v_more - (o.debt - g.debt) into v_more;
  end if;
  insert into dibs.turn (queue_id, lane, place, units, ping, ring) values (queue_id, lane, at, v_more, true, true);
end
$$;

comment on function dibs._change_lane is 'Give a lane more turns, or make it owe some.';

create or replace function dibs._reopen_lanes(queue_id integer) returns void
language sql volatile
begin atomic
  select dibs._open_lanes(array_agg(g.queue_id), array_agg(g.group_name), array_agg(g.due_at), dibs.now())
  from (
    select r.queue_id, j.group_name, min(r.due_at) as due_at
    from dibs.ready as r join dibs.job as j on j.id = r.id
    where r.queue_id = _reopen_lanes.queue_id and r.lane is not null and j.group_name is not null
    group by 1, 2
  ) as g;
end;

comment on function dibs._reopen_lanes is 'Open the lanes of all tickets of a queue.';

create or replace function dibs._repair_lanes(from_id uuid, to_id uuid, at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_mended bigint;
begin
  -- Every transaction that moves a turn keeps their sum, so one statement sees it whole.
  with chunk as materialized (
    select g.* from dibs.lane as g where g.id > from_id and (to_id is null or g.id <= to_id)
  ), held as (
    select t.lane, sum(t.units) as units, count(*) as rows from (
      select l.lane, 1 as units from dibs.lease as l where l.turn > 0 and l.lane is not null
      union all select b.lane, 1 from dibs.blocked as b where b.turn > 0 and b.lane is not null
    ) as t group by t.lane
  ), free as (
    select t.lane, sum(t.units) as units, count(*) as rows from dibs.turn as t
    where t.lane > from_id and (to_id is null or t.lane <= to_id) group by t.lane
  ), wrong as (
    select c.id, c.queue_id,
      case when c.concurrency is null then 0
        else c.concurrency + c.debt - coalesce(f.units, 0) - coalesce(h.units, 0) end as missing
    from chunk as c left join held as h on h.lane = c.id left join free as f on f.lane = c.id
    where case when c.concurrency is null then f.rows is null
      else coalesce(f.units, 0) + coalesce(h.units, 0) <> c.concurrency + c.debt end
  ), mended as (
    insert into dibs.turn (queue_id, lane, place, units, ping, ring)
    select w.queue_id, w.id, at, w.missing, true, true from wrong as w
    returning 1
  )
  select count(*) into v_mended from mended;
  -- The clock was stepped back: turns that would come too late are brought to the present.
  with chunk as materialized (
    select g.id, g.queue_id from dibs.lane as g
    cross join lateral (
      select min(t.place) as place, max(t.freed_at) as freed_at, bool_or(t.next is not null or t.tat > at) as waits
      from dibs.turn as t where t.lane = g.id) as t
    where g.id > from_id and (to_id is null or g.id <= to_id)
      and (t.freed_at > at + interval '500 milliseconds' or t.place > at + interval '500 milliseconds' and not t.waits and exists (
        select from dibs.queue as q cross join lateral unnest(q.group_priorities) as p (level)
        cross join lateral (
          select from dibs.ready as r
          where r.queue_id = g.queue_id and r.lane = g.id and r.priority = p.level and r.due_at <= at limit 1) as r
        where q.id = g.queue_id))
  ), pinged as (
    insert into dibs.turn (queue_id, lane, place, ping) select c.queue_id, c.id, at, true from chunk as c
  )
  update dibs.turn as t set freed_at = at from chunk as c where t.lane = c.id and t.freed_at > at;
  return v_mended;
end
$$;

comment on function dibs._repair_lanes is 'Put missing turns back to lanes whose ids lie in a range. Returns how many lanes that were.';

create or replace function dibs._repair_tickets(max integer) returns bigint
language plpgsql volatile
as $$
declare
  v_lost uuid[];
begin
  -- One look at each lane that has tickets, by skipping along the index.
  for v_queue in 1 .. coalesce((select max(q.id) from dibs.queue as q where q.group_priorities <> '{}'), 0) loop
    v_lost := v_lost || array(
      with recursive lane as (
        (select r.lane, r.id from dibs.ready as r where r.queue_id = v_queue and r.lane is not null order by r.lane limit 1)
        union all
        select n.lane, n.id from lane as l cross join lateral (
          select r.lane, r.id from dibs.ready as r
          where r.queue_id = v_queue and r.lane > l.lane order by r.lane limit 1) as n
      )
      select l.id from lane as l
      where not exists (select from dibs.lane as g where g.id = l.lane) limit _repair_tickets.max);
  end loop;
  perform dibs._open_lanes(array_agg(r.queue_id), array_agg(j.group_name), array_agg(r.due_at), dibs.now())
  from unnest(v_lost) as k (id) join dibs.ready as r on r.id = k.id join dibs.job as j on j.id = r.id;
  return coalesce(cardinality(v_lost), 0);
end
$$;

comment on function dibs._repair_tickets is 'Open a lane for tickets that have none. Returns how many lanes that were.';
