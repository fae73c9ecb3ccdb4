-- Tickets of candidates, shared by systematic sampling. FORMULAS.md derives it.

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
'The first due job of a group, even if another transaction has locked its ticket; null if none is due.';

create or replace function dibs._take_tickets(
  queue dibs.queue, candidates dibs.group_candidate[], first_no integer, exhausted integer[], counts integer[],
  want integer, at timestamptz)
returns dibs.group_tickets
language plpgsql volatile
as $$
declare
  -- Multiples of the golden ratio are spread evenly, also if several claims draw from one sequence.
  v_draw double precision := nextval('dibs.group_draw_seq') % 10000 * 0.6180339887498949::double precision;
  v_round dibs.group_tickets;
begin
  with open as materialized (
    select c.group_key, c.floors, c.next_ticket, c.ordinality::integer as no,
      c.free_runs - coalesce(counts[c.ordinality], 0) as free_runs, c.floors[1].cost as cost,
      coalesce((c.policy).weight, 1) / c.floors[1].cost as share,
      dibs._group_hold_for((c.policy).concurrency) as group_hold
    from unnest(candidates) with ordinality as c
    where c.ordinality >= first_no and c.ordinality <> all (exhausted) and c.floors is not null
      and (c.free_runs is null or c.free_runs > coalesce(counts[c.ordinality], 0))
  ), portion as materialized (
    -- Lay the portions of the groups end to end; first_point is the distance from its start to a sampling point.
    select p.*, p.jobs * p.cost as budget, ceil(p.start + v_draw) - (p.start + v_draw) as first_point
    from (
      select o.*, want * o.share / sum(o.share) over w as jobs, want * (
        sum(o.share) over (order by o.group_key rows unbounded preceding) - o.share) / sum(o.share) over w as start
      from open as o window w as ()
    ) as p
  ), tried as materialized (
    select p.*, least(ceil(p.budget - p.first_point), p.free_runs)::integer as most
    from portion as p where p.jobs > p.first_point
  ), pick as materialized (
    select t.spot, c.no, c.group_hold
    from tried as c
    cross join lateral (
      -- `point` is the place of a ticket in its group's budget, which ends at 1.
      select w.spot, w.id,
        (sum(w.cost) over (rows unbounded preceding) - w.cost + c.first_point * w.cost) / c.budget as point
      from (
        select r.spot, r.id, r.cost
        from unnest(case when (c.next_ticket).id is null then c.floors else array[c.next_ticket] end) as f
        cross join lateral (
          select r.ctid as spot, r.id, coalesce(r.cost, 1) as cost from dibs.ready as r
          where r.queue_id = (queue).id and r.group_key = c.group_key and r.priority = f.priority
            and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
            and r.due_at <= coalesce((c.next_ticket).due_at, _take_tickets.at) and r.expire_at > _take_tickets.at
            and ((c.next_ticket).id is null or r.id = (c.next_ticket).id)
          order by r.due_at, r.id limit c.most
          for update skip locked) as r
        limit c.most
      ) as w
    ) as t
    where t.point < 1 and (c.group_hold < 'exclusive' or (c.next_ticket).id is not null
      -- In strict order no job overtakes a locked ticket. Look for it only if the floor names another one.
      or t.id = (c.floors[1]).id
      or t.id = dibs._find_first_ticket((queue).id, c.group_key, c.floors, _take_tickets.at))
    order by t.point limit want
  ), gone as (
    delete from dibs.ready as r using pick as p where r.ctid = p.spot returning r, p.no, p.group_hold
  )
  select coalesce(array_agg(g.r), '{}'), array_agg(g.group_hold), coalesce(array_agg(g.no), '{}'),
    array(select c.no from tried as c)
  into v_round from gone as g;
  return v_round;
end
$$;

comment on function dibs._take_tickets is
'Take up to `want` tickets from the candidates with a number of at least first_no that are not exhausted and have free
runs. Each gives its share of `want` by weight and cost; a draw decides about fractions of a job. `counts` says how
many tickets each gave before.';
