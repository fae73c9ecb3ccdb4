-- What a claim takes: pointers, and tickets of the groups they name.

create or replace function dibs._merge_floors(floors dibs.group_floor[]) returns dibs.group_floor[]
language plpgsql immutable parallel safe
as $$
begin
  return (
    select array_agg(f.floor order by (f.floor).level desc) from (
      select distinct on (f.level) row(f.level, f.due_at, f.id, f.cost)::dibs.group_floor as floor from unnest(floors) as f
      where f.level is not null order by f.level, f.due_at, f.id nulls first) as f);
end
$$;

comment on function dibs._merge_floors is 'The lowest floor of each priority, the highest priority first.';

create or replace function dibs._take_pointers(
  of_queue integer, number integer, from_at timestamptz, from_n bigint, want integer, known uuid[], one_each boolean, at timestamptz,
  out hands dibs.group_hand[], out is_full boolean, out tickets dibs.ready[], out ords integer[], out asked integer[])
language plpgsql volatile
as $$
begin
  with pick as materialized (
    select t.group_key, t.place from dibs.group_pointer as t
    where t.queue_id = number and (t.place, t.n) >= (from_at, from_n) and t.place <= at and t.group_key <> all (known)
    order by t.place, t.n limit want
    for update skip locked
  ), kin as materialized (
    -- The group's others in the present are one with it.
    select k.spot from (select p.group_key, min(p.place) as place from pick as p group by p.group_key) as p
    cross join lateral (
      select t.ctid as spot from dibs.group_pointer as t
      where t.group_key = p.group_key and t.place >= p.place and t.place <= at and t.queue_id = number limit 1000
      for update skip locked) as k
  ), gone as (
    delete from dibs.group_pointer as t using kin as k where t.ctid = k.spot returning t.*
  ), hand as materialized (
    select h.*, one_each and random() < 1 / h.floors[1].cost as is_asked, row_number() over ()::integer as ord
    from (
      select g.group_key, min(g.n) as n, min(g.place) as place, sum(g.freed)::integer as freed, min(g.next::text)::uuid as next,
        case when count(*) = 1 and max(g.level) is not null then array_agg(row(g.level, g.floor_at, g.floor_id, g.cost)::dibs.group_floor)
          else dibs._merge_floors(array_agg(row(g.level, g.floor_at, g.floor_id, g.cost)::dibs.group_floor)) end as floors
      from gone as g group by g.group_key order by 3, 2
    ) as h
  ), ticket as materialized (
    select r.spot, h.ord from hand as h
    cross join lateral (
      select r.spot from unnest(h.floors) as f
      cross join lateral (
        select r.ctid as spot from dibs.ready as r
        where r.queue_id = of_queue and r.group_key = h.group_key and r.priority = f.level
          and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id())) and r.due_at <= at and r.expire_at > at
        order by r.due_at, r.id limit 1
        for update skip locked) as r
      limit 1) as r
    where h.is_asked
  ), taken as (
    delete from dibs.ready as r using ticket as t where r.ctid = t.spot returning r, t.ord
  )
  select array_agg(t.r), array_agg(t.ord), (select array_agg(h.ord) from hand as h where h.is_asked), (
    select array_agg(row(h.group_key, h.n, h.place, true, h.floors, h.freed, row(null, null, h.next, null)::dibs.group_floor,
      null, null, null, null)::dibs.group_hand) from hand as h),
    (select count(*) = want from pick)
  into tickets, ords, asked, hands, is_full from taken as t;
end
$$;

comment on function dibs._take_pointers is
'Take the pointers in front, and with each the others of its group that are in the present; one hand for each group that is not
yet `known`. If there is to be one of each, takes also the first ticket of each group; of an expensive one only at times.';

create or replace function dibs._see_pointers(number integer, from_at timestamptz, want integer, known uuid[], at timestamptz)
returns dibs.group_hand[]
language plpgsql volatile
as $$
begin
  return (
    select array_agg(row(h.group_key, null, null, false, h.floors, 0, null, null, null, null, null)::dibs.group_hand)
    from (
      select t.group_key, dibs._merge_floors(array_agg(row(t.level, t.floor_at, t.floor_id, t.cost)::dibs.group_floor)) as floors
      from (
        select t.* from dibs.group_pointer as t
        -- Others may have put pointers back since our clock was read.
        where t.queue_id = number and t.place >= from_at and t.place <= (select greatest(at, dibs.now()))
          and t.level is not null and t.group_key <> all (known)
        order by t.place, t.n limit want) as t
      group by t.group_key
    ) as h);
end
$$;

comment on function dibs._see_pointers is 'The groups that other claimers hold, as hands that are not our own.';

-- Called for the few tickets that their floor does not name; as a part of the statement it would cost all others more.
create or replace function dibs._first_of(of_queue integer, of_group uuid, floors dibs.group_floor[], at timestamptz)
returns uuid
language plpgsql stable
as $$
begin
  return (
    select r.id from unnest(floors) as f
    cross join lateral (
      select r.id from dibs.ready as r
      where r.queue_id = of_queue and r.group_key = of_group and r.priority = f.level
        and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
        and r.due_at <= _first_of.at and r.expire_at > _first_of.at
      order by r.due_at, r.id limit 1) as r
    limit 1);
end
$$;

comment on function dibs._first_of is
'The first job of a group that is due, whether or not another transaction has locked it.';

create or replace function dibs._take_tickets(
  queue dibs.queue, hands dibs.group_hand[], first integer, shut integer[], taken integer[], want integer, at timestamptz)
returns dibs.group_catch
language plpgsql volatile
as $$
declare
  -- Multiples of the golden ratio are spread most evenly, also when several claimers draw from the one sequence.
  v_draw double precision := nextval('dibs.group_draw_seq') % 10000 * 0.6180339887498949::double precision;
  v_catch dibs.group_catch;
begin
  with open as materialized (
    select h.group_key, h.floors, h.next, h.floors[1].cost as cost, h.ordinality::integer as ord,
      h.room - taken[h.ordinality] as room, coalesce((h.policy).weight, 1) / h.floors[1].cost as share,
      case when (h.policy).concurrency = 1 then dibs.group_hold 'exclusive' when (h.policy).concurrency > 1 then 'shared' else 'none' end
        as group_hold
    from unnest(hands) with ordinality as h
    where h.ordinality >= first and h.ordinality <> all (shut) and h.floors is not null and coalesce(h.room > taken[h.ordinality], true)
  ), drawn as materialized (
    -- Systematic sampling: lay the shares end to end and pick at evenly spaced points, one for each job.
    select o.*, o.jobs * o.cost as budget, ceil(o.before + v_draw) - (o.before + v_draw) as gap
    from (
      select o.*, want * o.share / sum(o.share) over () as jobs,
        want * (sum(o.share) over (order by o.group_key rows unbounded preceding) - o.share) / sum(o.share) over () as before
      from open as o
    ) as o
  ), asked as materialized (
    select d.*, least(ceil(d.budget - d.gap), d.room)::integer as allow from drawn as d where d.jobs > d.gap
  ), pick as materialized (
    select t.spot, a.ord, a.group_hold
    from asked as a
    cross join lateral (
      select t.spot, t.id, (sum(t.cost) over (rows unbounded preceding) - t.cost + a.gap * t.cost) / a.budget as at
      from (
        select r.spot, r.id, r.cost from unnest(case when (a.next).id is null then a.floors else array[a.next] end) as f
        cross join lateral (
          select r.ctid as spot, r.id, coalesce(r.cost, 1) as cost from dibs.ready as r
          where r.queue_id = (queue).id and r.group_key = a.group_key and r.priority = f.level
            and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
            and r.due_at <= coalesce((a.next).due_at, _take_tickets.at) and r.expire_at > _take_tickets.at
            and ((a.next).id is null or r.id = (a.next).id)
          order by r.due_at, r.id limit a.allow
          for update skip locked) as r
        limit a.allow
      ) as t
    ) as t
    where t.at < 1 and (a.group_hold < 'exclusive' or (a.next).id is not null
      -- In strict order nothing overtakes a job that another transaction has locked.
      or t.id = (a.floors[1]).id or t.id = dibs._first_of((queue).id, a.group_key, a.floors, _take_tickets.at))
    order by t.at limit want
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r, p.ord, p.group_hold
  )
  select array_agg(g.r), array_agg(g.group_hold), array_agg(g.ord), (select array_agg(a.ord) from asked as a)
  into v_catch from gone as g;
  return v_catch;
end
$$;

comment on function dibs._take_tickets is
'Take up to `want` tickets from the hands that are open, each its share by weight and cost. What a job costs is spent of its group''s
budget; where a budget ends within a job, the draw decides. Says also which hands were asked for something.';
