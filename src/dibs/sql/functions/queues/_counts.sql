-- Counting without end: each queue's tickets are counted in an index, up to a bound, and no further. Beyond it the number is
-- an estimate by pages that are spread evenly over the table: they are read now, so no statistics can be stale.

create or replace function dibs._count_bound() returns integer
language sql immutable parallel safe
return 10000;

comment on function dibs._count_bound is
'Up to how many tickets of a state are counted one by one in a look; the queues that it looks at share them.';

create or replace function dibs._ticket_table(state text) returns text
language sql immutable parallel safe
return case state when 'ready' then 'ready' when 'scheduled' then 'ready' when 'blocked' then 'blocked'
  when 'running' then 'lease' else 'dead' end;

comment on function dibs._ticket_table is 'The table that has the tickets of a state.';

create or replace function dibs._count_ungrouped(queue integer, at timestamptz, max integer, by_priority boolean)
returns setof dibs.ticket_count
language plpgsql stable
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
  v_each constant bigint := case when not by_priority then max else greatest(max / greatest((
    select count(*) from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) where q.id = any (v_ids)), 1), 10) end;
  v_all constant bigint := case when not by_priority then max end;
begin
  return query
  select queue, s.state, coalesce(c.jobs, 0)::double precision,
    coalesce(c.jobs > v_each or sum(c.jobs) over (partition by s.state) > v_all, false), null::timestamptz, c.priority, null::uuid
  from (values ('ready', timestamptz '-infinity', at), ('scheduled', at, 'infinity')) as s (state, after, upto)
  left join lateral (
    select t.priority, count(*) as jobs from (
      select q.id, p.priority from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
      cross join lateral (
        select from dibs.ready as r
        where r.queue_id = q.id and r.priority = p.priority and r.group_key is null
          and r.due_at > s.after and r.due_at <= s.upto
        limit v_each + 1) as r
      where q.id = any (v_ids) limit v_all + 1) as t
    group by t.id, t.priority
  ) as c on true;
end
$$;

comment on function dibs._count_ungrouped is
'The waiting jobs of a queue that have no group, by priority and state: up to `max` of a state are counted, the highest priorities first,
or if what counts are the priorities, as many of each. A state without jobs has a row, too.';

create or replace function dibs._count_grouped_blocked_dead(queue integer, at timestamptz, max integer, sources text[])
returns setof dibs.ticket_count
language plpgsql stable
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
begin
  return query
  -- The index of groups has no order by due time across them.
  with found as materialized (
    (select case when r.due_at > at then 'scheduled' else 'ready' end as state, r.priority from dibs.ready as r
     where 'ready' = any (sources) and r.queue_id = any (v_ids) and r.group_key is not null limit max + 1)
    union all
    (select 'blocked', b.priority from dibs.blocked as b where 'blocked' = any (sources) and b.queue_id = any (v_ids) limit max + 1)
    union all
    (select d.state, d.priority from dibs.dead as d where 'dead' = any (sources) and d.queue_id = any (v_ids) limit max + 1)
  ), counted as materialized (
    select dibs._ticket_table(f.state) as source, count(*) as jobs from found as f group by 1
  )
  select queue, s.state, count(f.state)::double precision, coalesce(max(c.jobs) > _count_grouped_blocked_dead.max, false), null::timestamptz,
    f.priority, null::uuid
  from unnest(array['ready', 'scheduled', 'blocked', 'failed', 'exhausted', 'expired', 'cancelled']) as s (state)
  left join found as f on f.state = s.state
  left join counted as c on c.source = dibs._ticket_table(s.state)
  where dibs._ticket_table(s.state) = any (sources) group by s.state, f.priority;
end
$$;

comment on function dibs._count_grouped_blocked_dead is
'The waiting jobs of a queue that have a group, the blocked and the dead ones, by priority and state; up to `max` of each of the three are
counted. A state without jobs has a row, too.';

create or replace function dibs._count_leases(queues integer[], max integer) returns setof dibs.ticket_count
language plpgsql stable
as $$
begin
  -- Leases have no index by queue: a heartbeat would have to write it.
  return query
  with found as materialized (
    select l.queue_id, l.priority, l.claimed_at from dibs.lease as l limit max + 1
  )
  select q.id, 'running', count(f.queue_id)::double precision, (select count(*) from found) > max, min(f.claimed_at),
    f.priority, null::uuid
  from unnest(queues) as q (id) cross join lateral unnest(dibs._queue_numbers(q.id)) as n (id)
  left join found as f on f.queue_id = n.id group by q.id, f.priority;
end
$$;

comment on function dibs._count_leases is
'The running jobs of queues, by priority; up to `max` leases of all queues are counted. A queue without any has a row, too.';

create or replace function dibs._max_sampled_pages() returns integer
language sql immutable parallel safe
return 256;

comment on function dibs._max_sampled_pages is 'How many pages of a table an estimate reads; a table that has no more of them is counted.';

create or replace function dibs._sampling_step(source text) returns double precision
language sql stable
return greatest(pg_relation_size(to_regclass('dibs.' || source))::double precision
  / current_setting('block_size')::integer / dibs._max_sampled_pages(), 1);

comment on function dibs._sampling_step is 'For how many pages of a table each page stands that an estimate reads.';

create or replace function dibs._sample_tickets(source text, at timestamptz) returns setof dibs.ticket_count
language plpgsql stable
as $$
declare
  v_step constant double precision := dibs._sampling_step(source);
  v_pages constant integer :=
    least(pg_relation_size('dibs.' || source) / current_setting('block_size')::integer, dibs._max_sampled_pages());
  v_page bigint;
  v_from tid;
  v_to tid;
begin
  for n in 0 .. v_pages - 1 loop
    v_page := floor((n + 0.5) * v_step);
    v_from := ('(' || v_page || ',0)')::tid;
    v_to := ('(' || v_page + 1 || ',0)')::tid;
    case source
      when 'ready' then
        return query
        select r.queue_id, case when r.due_at > at then 'scheduled' else 'ready' end, v_step, true, null::timestamptz,
          r.priority, r.group_key
        from dibs.ready as r where r.ctid >= v_from and r.ctid < v_to;
      when 'blocked' then
        return query
        select b.queue_id, 'blocked', v_step, true, null::timestamptz, b.priority, b.group_key
        from dibs.blocked as b where b.ctid >= v_from and b.ctid < v_to;
      when 'lease' then
        return query
        select l.queue_id, 'running', v_step, true, l.claimed_at, l.priority, l.group_key
        from dibs.lease as l where l.ctid >= v_from and l.ctid < v_to;
      when 'dead' then
        return query
        select d.queue_id, d.state, v_step, true, null::timestamptz, d.priority, null::uuid
        from dibs.dead as d where d.ctid >= v_from and d.ctid < v_to;
    end case;
  end loop;
end
$$;

comment on function dibs._sample_tickets is
'The jobs on pages that are spread evenly over a table, each for as many as it stands for; all of them if it has few pages.';

create or replace function dibs._round_to_three_digits(jobs double precision) returns bigint
language sql immutable strict parallel safe
return case when jobs < 1000 then jobs else round(jobs::numeric, 2 - floor(log(jobs))::integer) end;

comment on function dibs._round_to_three_digits is 'An estimate, to three digits.';

create or replace function dibs._count_states(
  queues integer[], at timestamptz, sources text[] default '{ready,blocked,lease,dead}', by_priority boolean default false)
returns table (queue_id integer, priority smallint, state text, jobs bigint, since timestamptz, is_estimate boolean)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_max constant integer := greatest(dibs._count_bound() / greatest(cardinality(queues), 1), 10);
  v_counts constant dibs.ticket_count[] := array(
    select c from unnest(queues) as q (id) cross join lateral dibs._count_ungrouped(q.id, at, v_max, by_priority) as c
    where 'ready' = any (sources)
    union all select c from unnest(queues) as q (id) cross join lateral dibs._count_grouped_blocked_dead(q.id, at, v_max, sources) as c
    union all select c from dibs._count_leases(queues, 2 * dibs._count_bound()) as c where 'lease' = any (sources));
begin
  return query
  with part as materialized (
    select q.id, n.id as part from unnest(queues) as q (id) cross join lateral unnest(dibs._queue_numbers(q.id)) as n (id)
  ), ticket as (
    select false as is_sample, c.queue_id, c.priority, c.state, c.jobs, c.is_cut, c.since from unnest(v_counts) as c
    union all
    select true, p.id, s.priority, s.state, s.jobs, null, s.since
    from (select distinct dibs._ticket_table(c.state) as name from unnest(v_counts) as c where c.is_cut) as t
    cross join lateral dibs._sample_tickets(t.name, at) as s join part as p on p.part = s.queue_id
  ), summed as (
    select t.queue_id, case when by_priority then t.priority end as priority, t.state, min(t.since) as since,
      -- What only the sample has was not reached by the counting.
      coalesce(bool_or(t.is_cut), true) as is_cut, coalesce(sum(t.jobs) filter (where not t.is_sample), 0) as counted,
      coalesce(sum(t.jobs) filter (where t.is_sample), 0) as sampled
    from ticket as t group by 1, 2, 3
  )
  select s.queue_id, s.priority, s.state,
    case when not s.is_cut then s.counted::bigint when w.is_whole then s.sampled::bigint
      else dibs._round_to_three_digits(greatest(s.counted, s.sampled)) end,
    s.since, s.is_cut and not w.is_whole
  from summed as s cross join lateral (select dibs._sampling_step(dibs._ticket_table(s.state)) = 1 as is_whole) as w;
end
$$;

comment on function dibs._count_states is
'How many jobs of queues are in each state whose tickets are in one of some tables, in all or by priority: counted one by one up to a
bound that they share, and estimated beyond it.';

create or replace function dibs._find_oldest_ready(
  queue integer, at timestamptz, out ready timestamptz, out untried timestamptz, out is_estimate boolean)
language plpgsql stable
as $$
declare
  c_max constant integer := 1000;
  v_ids constant integer[] := dibs._queue_numbers(queue);
  v_grouped bigint;
  v_ready timestamptz;
  v_untried timestamptz;
begin
  select min(h.due_at), min(coalesce(u.due_at, l.due_at)), coalesce(bool_or(u.due_at is null and l.due_at is not null), false)
  into ready, untried, is_estimate
  from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
  cross join lateral (
    select r.due_at from dibs.ready as r
    where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
    order by r.due_at, r.id limit 1) as h
  left join lateral (
    select r.due_at from (
      select r.due_at, r.run from dibs.ready as r
      where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
      order by r.due_at, r.id limit c_max) as r
    where r.run = 0 limit 1) as u on true
  -- All that were looked at have run before: the oldest that has not is due after them.
  left join lateral (
    select r.due_at from dibs.ready as r
    where u.due_at is null and r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
    order by r.due_at, r.id offset c_max limit 1) as l on true
  where q.id = any (v_ids);
  select count(*), min(r.due_at) filter (where r.due_at <= at), min(r.due_at) filter (where r.due_at <= at and r.run = 0)
  into v_grouped, v_ready, v_untried
  from (
    select r.due_at, r.run from dibs.ready as r where r.queue_id = any (v_ids) and r.group_key is not null
    limit c_max + 1) as r;
  if v_grouped > c_max then
    -- A pointer to a group is as old as its oldest job, or older.
    v_ready := least(v_ready, (
      select min(t.place) from unnest(v_ids) as k (id) cross join lateral (
        select t.place from dibs.group_pointer as t
        where t.queue_id = k.id and t.place <= at order by t.queue_id, t.place limit 1) as t));
    is_estimate := true;
  end if;
  ready := least(ready, v_ready);
  untried := least(untried, v_untried);
end
$$;

comment on function dibs._find_oldest_ready is
'Since when the oldest ready job of a queue is due, and the oldest of those that never ran; an estimate when too many would have
to be looked at.';
