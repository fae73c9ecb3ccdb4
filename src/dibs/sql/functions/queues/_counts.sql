-- Count tickets through indexes, up to a bound, so that a look costs the same however many jobs there are. Beyond the
-- bound the number is an estimate (_sample.sql).

create or replace function dibs._count_bound() returns integer
language sql immutable parallel safe
return 10000;

comment on function dibs._count_bound is
'The number of tickets of each state that a look counts one by one. A look at several queues divides it among them.
Beyond it, the count is an estimate.';

create or replace function dibs._ticket_table(state text) returns text
language sql immutable parallel safe
return case state when 'ready' then 'ready' when 'scheduled' then 'ready' when 'blocked' then 'blocked'
  when 'running' then 'lease' else 'dead' end;

comment on function dibs._ticket_table is 'The table that has the tickets of jobs in a state.';

create or replace function dibs._count_ungrouped(queue integer, at timestamptz, max integer, by_priority boolean)
returns setof dibs.ticket_count
language plpgsql stable
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
  v_priorities constant bigint := case when by_priority then (
    select count(*) from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) where q.id = any (v_ids)) end;
  -- The bounds for one priority of one shard, and for one state. Null is no bound, as in LIMIT.
  v_max_each constant bigint := case when by_priority then greatest(max / greatest(v_priorities, 1), 10) else max end;
  v_max_state constant bigint := case when not by_priority then max end;
begin
  return query
  select queue, s.state, coalesce(counted.jobs, 0)::double precision,
    coalesce(counted.jobs > v_max_each or sum(counted.jobs) over (partition by s.state) > v_max_state, false),
    null::timestamptz, counted.priority, null::uuid
  from (values ('ready', timestamptz '-infinity', at), ('scheduled', at, 'infinity')) as s (state, after, upto)
  left join lateral (
    select ticket.priority, count(*) as jobs from (
      select q.id, p.priority from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
      cross join lateral (
        select from dibs.ready as r
        where r.queue_id = q.id and r.priority = p.priority and r.group_key is null
          and r.due_at > s.after and r.due_at <= s.upto
        limit v_max_each + 1) as r
      where q.id = any (v_ids) limit v_max_state + 1) as ticket
    group by ticket.id, ticket.priority
  ) as counted on true;
end
$$;

comment on function dibs._count_ungrouped is
'Count the scheduled and the ready jobs of a queue that have no group, by priority. Stops after `max` jobs of a state;
with `by_priority`, each priority gets an equal share of `max` instead, and at least 10. `is_cut` is true if there are
more. A state without jobs has a row with zero jobs.';

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
  -- Ready and scheduled jobs of groups are counted together: the index of groups is not ordered by due time.
  with ticket as materialized (
    (select case when r.due_at > at then 'scheduled' else 'ready' end as state, r.priority from dibs.ready as r
     where 'ready' = any (sources) and r.queue_id = any (v_ids) and r.group_key is not null limit max + 1)
    union all
    (select 'blocked', b.priority from dibs.blocked as b
     where 'blocked' = any (sources) and b.queue_id = any (v_ids) limit max + 1)
    union all
    (select d.state, d.priority from dibs.dead as d
     where 'dead' = any (sources) and d.queue_id = any (v_ids) limit max + 1)
  ), in_table as materialized (
    select dibs._ticket_table(t.state) as source, count(*) as jobs from ticket as t group by 1
  )
  select queue, s.state, count(t.state)::double precision,
    coalesce(max(i.jobs) > _count_grouped_blocked_dead.max, false), null::timestamptz, t.priority, null::uuid
  from unnest(array['ready', 'scheduled', 'blocked', 'failed', 'exhausted', 'expired', 'cancelled']) as s (state)
  left join ticket as t on t.state = s.state
  left join in_table as i on i.source = dibs._ticket_table(s.state)
  where dibs._ticket_table(s.state) = any (sources) group by s.state, t.priority;
end
$$;

comment on function dibs._count_grouped_blocked_dead is
'Count the jobs of a queue that wait in a group, are blocked, or are dead, by priority and state. Stops after `max`
tickets of each of the three tables. A state without jobs has a row with zero jobs.';

create or replace function dibs._count_leases(queues integer[], max integer) returns setof dibs.ticket_count
language plpgsql stable
as $$
begin
  -- Leases have no index by queue: every heartbeat would have to write to it.
  return query
  with lease as materialized (
    select l.queue_id, l.priority, l.claimed_at from dibs.lease as l limit max + 1
  )
  select q.id, 'running', count(l.queue_id)::double precision, (select count(*) from lease) > max, min(l.claimed_at),
    l.priority, null::uuid
  from unnest(queues) as q (id) cross join lateral unnest(dibs._queue_numbers(q.id)) as shard (id)
  left join lease as l on l.queue_id = shard.id group by q.id, l.priority;
end
$$;

comment on function dibs._count_leases is
'Count the running jobs of queues, by priority. Stops after `max` leases of all queues together. A queue without running
jobs has a row with zero jobs.';

create or replace function dibs._count_states(
  queues integer[], at timestamptz, sources text[] default '{ready,blocked,lease,dead}',
  by_priority boolean default false)
returns table (queue_id integer, priority smallint, state text, jobs bigint, since timestamptz, is_estimate boolean)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_max constant integer := greatest(dibs._count_bound() / greatest(cardinality(queues), 1), 10);
  v_counts constant dibs.ticket_count[] := array(
    select c from unnest(queues) as q (id) cross join lateral dibs._count_ungrouped(q.id, at, v_max, by_priority) as c
    where 'ready' = any (sources)
    union all
    select c from unnest(queues) as q (id)
    cross join lateral dibs._count_grouped_blocked_dead(q.id, at, v_max, sources) as c
    union all
    select c from dibs._count_leases(queues, 2 * dibs._count_bound()) as c where 'lease' = any (sources));
begin
  return query
  with shard as materialized (
    select q.id as queue_id, n.id from unnest(queues) as q (id)
    cross join lateral unnest(dibs._queue_numbers(q.id)) as n (id)
  ), ticket as (
    select false as is_sample, c.queue_id, c.priority, c.state, c.jobs, c.is_cut, c.since from unnest(v_counts) as c
    union all
    -- Sample each table in which some counting stopped at its bound.
    select true, s.queue_id, t.priority, t.state, t.jobs, null, t.since
    from (select distinct dibs._ticket_table(c.state) as source from unnest(v_counts) as c where c.is_cut) as cut
    cross join lateral dibs._sample_tickets(cut.source, at) as t join shard as s on s.id = t.queue_id
  ), summed as (
    select t.queue_id, case when by_priority then t.priority end as priority, t.state, min(t.since) as since,
      -- is_cut is null in rows of a sample. A priority that has no others was not reached by the counting.
      coalesce(bool_or(t.is_cut), true) as is_cut,
      coalesce(sum(t.jobs) filter (where not t.is_sample), 0) as counted,
      coalesce(sum(t.jobs) filter (where t.is_sample), 0) as sampled
    from ticket as t group by 1, 2, 3
  )
  select s.queue_id, s.priority, s.state,
    case when not s.is_cut then s.counted::bigint when w.is_whole then s.sampled::bigint
      else dibs._round_to_three_digits(greatest(s.counted, s.sampled)) end,
    s.since, s.is_cut and not w.is_whole
  from summed as s
  -- If all pages were read, the sample is an exact count.
  cross join lateral (select dibs._sampling_step(dibs._ticket_table(s.state)) = 1 as is_whole) as w;
end
$$;

comment on function dibs._count_states is
'Count the jobs of queues by state, or by priority and state, for the states whose tickets are in the tables `sources`.
A state of which too many jobs were found to count them all gets an estimate (`is_estimate`). `since` is when the oldest
running job was claimed. `priority` is null unless `by_priority`.';
