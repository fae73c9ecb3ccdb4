-- Candidates: the groups that a claim may serve, and the search for them.

create or replace function dibs._candidate(
  group_key uuid, has_pointers boolean, floors dibs.group_floor[], pointer_n bigint default null,
  look_at timestamptz default null, ended_runs integer default 0, next_id uuid default null,
  next_ticket dibs.group_floor default null, policy dibs.group_policy default null,
  gate dibs.group_gate_state default 'none',
  running integer default null, tat timestamptz default null, free_runs integer default null)
returns dibs.group_candidate
language sql immutable parallel safe
return row(group_key, pointer_n, look_at, has_pointers, floors, ended_runs, next_id, next_ticket, policy, gate,
  running, tat, free_runs)::dibs.group_candidate;

comment on function dibs._candidate is
'Make a candidate; its fields have the names of the arguments. PostgreSQL inlines this function.';

create or replace function dibs._merge_floors(floors dibs.group_floor[]) returns dibs.group_floor[]
language plpgsql immutable parallel safe
as $$
begin
  return (
    select array_agg(l.floor order by (l.floor).priority desc) from (
      select distinct on (f.priority) row(f.priority, f.due_at, f.id, f.cost)::dibs.group_floor as floor
      from unnest(floors) as f where f.priority is not null
      order by f.priority, f.due_at, f.id nulls first) as l);
end
$$;

comment on function dibs._merge_floors is
'Return the lowest floor of each priority, the highest priority first; null if there is none. Floors without a priority
come from wakeups and are left out.';

create or replace function dibs._take_pointers(
  of_queue integer, rotation integer, from_at timestamptz, from_n bigint, want integer, known uuid[],
  with_tickets boolean, at timestamptz,
  out candidates dibs.group_candidate[], out is_full boolean, out early_tickets dibs.group_tickets)
language plpgsql volatile
as $$
begin
  with front as materialized (
    -- The first pointers that no other claim has locked.
    select t.group_key, t.look_at from dibs.group_pointer as t
    where t.queue_id = rotation and (t.look_at, t.n) >= (from_at, from_n) and t.look_at <= at
      and t.group_key <> all (known)
    order by t.look_at, t.n limit want
    for update skip locked
  ), due as materialized (
    -- All due pointers of their groups, up to 1,000 of each.
    select s.spot from (select f.group_key, min(f.look_at) as look_at from front as f group by f.group_key) as f
    cross join lateral (
      select t.ctid as spot from dibs.group_pointer as t
      where t.group_key = f.group_key and t.look_at >= f.look_at and t.look_at <= at and t.queue_id = rotation
      limit 1000
      for update skip locked) as s
  ), gone as (
    delete from dibs.group_pointer as t using due as d where t.ctid = d.spot returning t.*
  ), candidate as materialized (
    -- One candidate for each group, in the order of the rotation. Without rules, its share is 1 / cost, and so is the
    -- probability that it gives a ticket now.
    select m.*, with_tickets and random() < 1 / m.floors[1].cost as is_tried, row_number() over ()::integer as no
    from (
      select g.group_key, min(g.n) as n, min(g.look_at) as look_at, sum(g.ended_runs)::integer as ended_runs,
        min(g.next_id::text)::uuid as next_id,
        case when count(*) = 1 and max(g.priority) is not null
          then array_agg(row(g.priority, g.floor_at, g.floor_id, g.cost)::dibs.group_floor)
          else dibs._merge_floors(array_agg(row(g.priority, g.floor_at, g.floor_id, g.cost)::dibs.group_floor))
        end as floors
      from gone as g group by g.group_key order by look_at, n
    ) as m
  ), ticket as materialized (
    -- The first ticket of each group that is tried, of its highest priority; null if there is none.
    select r.spot, c.no from candidate as c
    left join lateral (
      select r.spot from unnest(c.floors) as f
      cross join lateral (
        select r.ctid as spot from dibs.ready as r
        where r.queue_id = of_queue and r.group_key = c.group_key and r.priority = f.priority
          and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id())) and r.due_at <= at and r.expire_at > at
        order by r.due_at, r.id limit 1
        for update skip locked) as r
      limit 1) as r on true
    where c.is_tried
  ), taken as (
    delete from dibs.ready as r using ticket as t where r.ctid = t.spot returning r, t.no
  )
  select coalesce(array_agg(t.r), '{}'), coalesce(array_agg(t.no), '{}'),
    array(select k.no from ticket as k where k.spot is null),
    array(select dibs._candidate(c.group_key, has_pointers => true, floors => c.floors, pointer_n => c.n,
      look_at => c.look_at, ended_runs => c.ended_runs, next_id => c.next_id) from candidate as c),
    (select count(*) = want from front)
  into early_tickets.tickets, early_tickets.candidate_nos, early_tickets.exhausted_nos, candidates, is_full
  from taken as t;
end
$$;

comment on function dibs._take_pointers is
'Delete up to `want` pointers of a rotation from (from_at, from_n) on, except those of `known` groups, and all other due
pointers of their groups. Return a candidate for each group. `is_full` is true if there may be more pointers.
`with_tickets` also takes the first ticket of each group (`early_tickets`); if its tickets cost more than 1, only
sometimes.';

create or replace function dibs._add_candidates(
  queue dibs.queue, inout search dibs.group_search, with_tickets boolean, at timestamptz,
  out early_tickets dibs.group_tickets)
language plpgsql volatile
as $$
declare
  v_known uuid[] := array(select c.group_key from unnest(search.candidates) as c);
  v_pointers record;
  v_new dibs.group_candidate[] := '{}'::dibs.group_candidate[];
  v_locked integer[];
begin
  early_tickets.tickets := '{}'::dibs.ready[];
  search.first_tried_no := cardinality(search.candidates) + 1;
  if search.has_more_pointers then
    v_pointers := dibs._take_pointers((queue).id, search.rotation, search.from_at, search.from_n, search.width, v_known,
      with_tickets and cardinality(v_known) = 0, at);
    v_new := v_pointers.candidates;
    early_tickets := v_pointers.early_tickets;
    search.has_more_pointers := v_pointers.is_full;
    search.first_at := coalesce(search.first_at, v_new[1].look_at);
    search.first_n := coalesce(search.first_n, v_new[1].pointer_n);
  end if;
  if not search.has_more_pointers and cardinality(early_tickets.tickets) = 0 then
    -- Add the groups whose pointers other claims have locked. They may give tickets, too, and count when the missing
    -- jobs are shared. From now on, each round tries all candidates.
    v_known := v_known || array(select c.group_key from unnest(v_new) as c);
    v_new := v_new || array(
      select dibs._candidate(l.group_key, has_pointers => false, floors => l.floors)
      from (
        select p.group_key,
          dibs._merge_floors(array_agg(row(p.priority, p.floor_at, p.floor_id, p.cost)::dibs.group_floor)) as floors
        from (
          select t.* from dibs.group_pointer as t
          -- Look up to the present: other claims may have reinserted pointers after `at`.
          where t.queue_id = search.rotation and t.look_at >= search.from_at
            and t.look_at <= (select greatest(at, dibs.now()))
            and t.priority is not null and t.group_key <> all (v_known)
          order by t.look_at, t.n limit search.width) as p
        group by p.group_key
      ) as l);
    search.first_tried_no := 1;
    search.includes_others := true;
  end if;
  if (queue).noisy_share is not null and search.rotation > 0 then
    v_new := dibs._divert_noisy_groups(queue, v_new, at);
  end if;
  if (queue).has_group_policy then
    -- Lock limited groups, except those that other claims have locked. A later statement looks at the gates, and by a
    -- later time: other claims may have left them with a newer clock.
    v_locked := array(
      select l.bucket
      from (
        select distinct dibs._group_bucket(c.group_key) as bucket from unnest(v_new) as c
        cross join lateral dibs._find_group_policy((queue).id, c.group_key) as p
        where c.has_pointers and p.is_limited
      ) as b
      cross join lateral (
        select l.bucket from dibs.group_lock as l where l.bucket = b.bucket for update skip locked) as l);
    v_new := dibs._take_group_gates(queue, v_new, v_locked, case when v_locked = '{}' then at else dibs.now() end);
  end if;
  search.candidates := search.candidates || v_new;
end
$$;

comment on function dibs._add_candidates is
'Continue a search: delete the next pointers; once there are no more, add the groups whose pointers other claims have
locked. Leave noisy groups out, and lock limited groups. With `with_tickets`, the first step of a search also takes one
ticket of each group in the same statement (`early_tickets`), which is right where all weights are 1 and no group is
limited.';
