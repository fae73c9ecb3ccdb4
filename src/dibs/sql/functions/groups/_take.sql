-- Tickets of candidates, shared by systematic sampling. FORMULAS.md derives it, with the same names.

create or replace function dibs._find_first_ticket(
  of_queue integer, of_group uuid, floors dibs.group_floor[], at timestamptz) returns uuid
language plpgsql stable
as $$
begin
  return (
    select r.id from unnest(floors) as f
    cross join lateral (
      select r.id from dibs.ready as r
      where r.queue_id = of_queue and r.group_key = of_group and r.priority = f.priority
        and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
        and r.due_at <= _find_first_ticket.at and r.expire_at > _find_first_ticket.at
      order by r.due_at, r.id limit 1) as r
    limit 1);
end
$$;

comment on function dibs._find_first_ticket is
'Return the id of the first due ticket of a group at or above its floors, even if another transaction has locked it;
null if none is due.';

create or replace function dibs._take_tickets(
  queue dibs.queue, candidates dibs.group_candidate[], first_no integer, exhausted integer[], counts integer[],
  want integer, at timestamptz)
returns dibs.group_tickets
language plpgsql volatile
as $$
declare
  -- Multiples of the golden ratio are spread evenly: one sequence for all claims.
  v_draw double precision := nextval('dibs.group_draw_seq') % 10000 * 0.6180339887498949::float8;
  v_round dibs.group_tickets;
begin
  with open as materialized (
    -- A strict group that has to go on with one job gives only its next_ticket.
    select c.group_key, c.ordinality::integer as no, c.free_runs - n.taken as free_runs, (c.next_ticket).id as next_id,
      case when (c.next_ticket).id is null then c.floors else array[c.next_ticket] end as floors,
      coalesce((c.next_ticket).due_at, at) as until, coalesce((c.policy).group_hold, 'none') as group_hold,
      c.floors[1].cost as cost, coalesce((c.policy).weight, 1) / c.floors[1].cost as share
    from unnest(candidates) with ordinality as c
    cross join lateral (select coalesce(counts[c.ordinality], 0) as taken) as n
    where c.ordinality >= first_no and c.ordinality <> all (exhausted) and c.floors is not null
      and coalesce(c.free_runs > n.taken, true)
  ), portion as (
    -- The portions lie end to end: each is `jobs` long and begins at `start`.
    select p.*, p.jobs * p.cost as budget, ceil(p.start + v_draw) - (p.start + v_draw) as first_point
    from (
      select o.*, want * o.share / sum(o.share) over () as jobs, want * (
        sum(o.share) over (order by o.group_key rows unbounded preceding) - o.share) / sum(o.share) over () as start
      from open as o
    ) as p
  ), tried as materialized (
    -- Groups with a sampling point in their portion.
    select p.*, least(ceil(p.budget - p.first_point), p.free_runs)::integer as most
    from portion as p where p.jobs > p.first_point
  ), pick as materialized (
    select t.spot, c.no, c.group_hold
    from tried as c
    cross join lateral (
      -- `point`: its sampling point, as a fraction of the budget.
      select w.spot, w.id,
        (sum(w.cost) over (rows unbounded preceding) - w.cost + c.first_point * w.cost) / c.budget as point
      from (
        select r.* from unnest(c.floors) as f
        cross join lateral (
          select r.ctid as spot, r.id, coalesce(r.cost, 1) as cost from dibs.ready as r
          where r.queue_id = (queue).id and r.group_key = c.group_key and r.priority = f.priority
            and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
            and r.due_at <= c.until and r.expire_at > at and (c.next_id is null or r.id = c.next_id)
          order by r.due_at, r.id limit c.most
          for update skip locked) as r
        limit c.most
      ) as w
    ) as t
    where t.point < 1 and (c.group_hold < 'exclusive' or t.id = c.next_id
      -- In strict order no job overtakes a locked ticket. None is before one that the floor names.
      or t.id = (c.floors[1]).id
      or t.id = dibs._find_first_ticket((queue).id, c.group_key, c.floors, at))
    order by t.point limit want
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r, p.no, p.group_hold
  )
  select coalesce(array_agg(g.r), '{}'), array_agg(g.group_hold), coalesce(array_agg(g.no), '{}'),
    array(select c.no from tried as c except select p.no from pick as p)
  into v_round from gone as g;
  return v_round;
end
$$;

comment on function dibs._take_tickets is
'Take up to `want` tickets from the candidates numbered first_no and above that are not exhausted and have free runs.
Each gives its share of `want` by weight and cost; a draw decides about fractions of a job. `counts` says how many
tickets each gave before.';
