-- Tickets of candidates, shared by systematic sampling. FORMULAS.md derives it, in "Which groups give a job", with the
-- same names.

create or replace function dibs._sampling_portions(
  candidates dibs.group_candidate[], first_tried_no integer, exhausted integer[], counts integer[], want integer,
  draw double precision, at timestamptz)
returns table (
  no integer, group_key uuid, floors dibs.group_floor[], next_id uuid, last_due_at timestamptz,
  group_hold dibs.group_hold, free_runs integer, expected_cost real, jobs double precision, budget double precision,
  gap double precision)
language sql stable
begin atomic
  with candidate as materialized (
    -- A strict group that has a next_ticket gives only that one: search only its place.
    select c.ordinality::integer as no, c.group_key,
      case when (c.next_ticket).id is null then c.floors else array[c.next_ticket] end as floors,
      (c.next_ticket).id as next_id, coalesce((c.next_ticket).due_at, _sampling_portions.at) as last_due_at,
      coalesce((c.policy).group_hold, 'none') as group_hold, c.free_runs - n.taken as free_runs,
      c.floors[1].cost as expected_cost, coalesce((c.policy).weight, 1) / c.floors[1].cost as share
    from unnest(_sampling_portions.candidates) with ordinality as c
    cross join lateral (select coalesce(_sampling_portions.counts[c.ordinality], 0) as taken) as n
    where c.ordinality >= _sampling_portions.first_tried_no and c.ordinality <> all (_sampling_portions.exhausted)
      and c.floors is not null and coalesce(c.free_runs > n.taken, true)
  )
  select p.no, p.group_key, p.floors, p.next_id, p.last_due_at, p.group_hold, p.free_runs, p.expected_cost,
    p.jobs, p.jobs * p.expected_cost, ceil(p.start + _sampling_portions.draw) - (p.start + _sampling_portions.draw)
  from (
    -- The portions lie end to end: each is `jobs` long and begins at `start`.
    select c.*, _sampling_portions.want * c.share / sum(c.share) over () as jobs, _sampling_portions.want * (
      sum(c.share) over (order by c.group_key rows unbounded preceding) - c.share) / sum(c.share) over () as start
    from candidate as c
  ) as p;
end;

comment on function dibs._sampling_portions is
'Return the portion of `want` jobs of each candidate that may give tickets in this round: from number first_tried_no
on, not exhausted, and with free runs. `jobs` is the length of the portion, `budget` is the same in units of cost, and
`gap` is the distance from its start to the first sampling point. A ticket must be due by last_due_at, and must be
next_id unless that is null. PostgreSQL inlines this function.';

create or replace function dibs._take_tickets(
  queue dibs.queue, candidates dibs.group_candidate[], first_tried_no integer, exhausted integer[], counts integer[],
  want integer, at timestamptz)
returns dibs.group_tickets
language plpgsql volatile
as $$
declare
  -- Multiples of the golden ratio are spread evenly: one sequence for all claims.
  v_draw double precision := nextval('dibs.group_draw_seq') % 10000 * 0.6180339887498949::float8;
  v_round dibs.group_tickets;
begin
  with tried as materialized (
    -- Groups with a sampling point in their portion. At most `most` of their tickets fit: each costs 1 at least.
    select p.*, least(ceil(p.budget - p.gap), p.free_runs)::integer as most
    from dibs._sampling_portions(candidates, first_tried_no, exhausted, counts, want, v_draw, at) as p
    where p.gap < p.jobs
  ), pick as materialized (
    select t.spot, c.no, c.group_hold
    from tried as c
    cross join lateral (
      -- `reach` is the part of the budget that is spent up to this ticket. The first one counts with the expected cost:
      -- a group that is tried gives it, whatever it costs.
      select t.spot, t.id,
        (t.cost_before + c.gap * case when t.cost_before = 0 then c.expected_cost else t.cost end) / c.budget as reach
      from (
        -- The first tickets of the group that no other transaction has locked.
        select u.*, sum(u.cost) over (rows unbounded preceding) - u.cost as cost_before
        from (
          select r.* from unnest(c.floors) as f
          cross join lateral (
            select r.ctid as spot, r.id, coalesce(r.cost, 1) as cost from dibs.ready as r
            where r.queue_id = (queue).id and r.group_key = c.group_key and r.priority = f.priority
              and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
              and r.due_at <= c.last_due_at and r.expire_at > at and (c.next_id is null or r.id = c.next_id)
            order by r.due_at, r.id limit c.most
            for update skip locked) as r
          limit c.most
        ) as u
      ) as t
    ) as t
    where t.reach < 1 and (c.group_hold <> 'exclusive'
      -- In strict order no job overtakes a locked ticket: take only the next_ticket, the ticket that the floor names,
      -- or the one that is first if locked ones count.
      or t.id = c.next_id or t.id = (c.floors[1]).id
      or t.id = (
        select r.id from unnest(c.floors) as f
        cross join lateral (
          select r.id from dibs.ready as r
          where r.queue_id = (queue).id and r.group_key = c.group_key and r.priority = f.priority
            and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
            and r.due_at <= _take_tickets.at and r.expire_at > _take_tickets.at
          order by r.due_at, r.id limit 1) as r
        limit 1))
    order by t.reach limit want
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
'Take up to `want` tickets from the candidates numbered first_tried_no and above that are not exhausted and have free
runs. Each gives its share of `want` by weight and cost; a draw decides about fractions of a job. `counts` says how many
tickets each gave before. Returns as exhausted those that were tried and gave none.';
