-- depth_by_priority: how much of each priority waits and runs.

create or replace function dibs._count_plain(queue integer, at timestamptz, max integer) returns setof dibs.ticket_count
language plpgsql stable
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
begin
  return query
  select queue, s.state, c.jobs::double precision, c.jobs > max, null::timestamptz, p.priority, null::uuid
  from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
  cross join (values ('ready', timestamptz '-infinity', at), ('scheduled', at, 'infinity')) as s (state, after, upto)
  cross join lateral (
    select count(*) as jobs from (
      select from dibs.ready as r
      where r.queue_id = q.id and r.priority = p.priority and r.lane is null
        and r.due_at > s.after and r.due_at <= s.upto
      limit max + 1) as r) as c
  where q.id = any (v_ids);
end
$$;

comment on function dibs._count_plain is 'The waiting jobs of a queue that have no group, counted up to `max` of each priority.';

create or replace function dibs._count_priorities(queue integer, at timestamptz, max integer) returns setof dibs.ticket_count
language plpgsql stable
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
begin
  return query
  with found as materialized (
    (select r.priority, case when r.due_at > at then 'scheduled' else 'ready' end as state from dibs.ready as r
     where r.queue_id = any (v_ids) and r.lane is not null limit max + 1)
    union all
    (select b.priority, 'blocked' from dibs.blocked as b where b.queue_id = any (v_ids) limit max + 1)
  )
  select queue, f.state, count(*)::double precision, (
    select count(*) from found as o where dibs._source_of(o.state) = dibs._source_of(f.state)) > max, null::timestamptz,
    f.priority, null::uuid
  from found as f group by f.state, f.priority;
end
$$;

comment on function dibs._count_priorities is
'The waiting jobs of a queue that have a group, and the blocked ones, by priority; up to `max` of both are counted.';

create or replace function dibs._count_held(queue integer, max integer) returns setof dibs.ticket_count
language plpgsql stable
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
begin
  return query
  with found as materialized (select l.queue_id, l.priority from dibs.lease as l limit max + 1)
  select queue, 'running', count(*)::double precision, (select count(*) from found) > max, null::timestamptz, f.priority, null::uuid
  from found as f where f.queue_id = any (v_ids) group by f.priority;
end
$$;

comment on function dibs._count_held is 'The running jobs of a queue by priority; up to `max` leases of all queues are counted.';

create or replace function dibs.depth_by_priority(queue text)
returns table (priority smallint, scheduled bigint, ready bigint, blocked bigint, running bigint, estimated text[])
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_id constant integer := dibs._queue_number(queue);
  v_ids constant integer[] := dibs._queue_numbers(v_id);
  v_now constant timestamptz := dibs.now();
  v_parts constant bigint := (
    select count(*) from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) where q.id = any (v_ids));
  v_counts constant dibs.ticket_count[] := array(
    select c from dibs._count_plain(v_id, v_now, greatest(dibs._count_bound() / v_parts, 10)::integer) as c
    union all select c from dibs._count_priorities(v_id, v_now, dibs._count_bound()) as c
    union all select c from dibs._count_held(v_id, 2 * dibs._count_bound()) as c);
begin
  return query
  with counted as materialized (
    select c.priority, c.state, sum(c.jobs) as jobs, bool_or(c.is_cut) as is_cut from unnest(v_counts) as c group by 1, 2
  ), sampled as materialized (
    select s.priority, s.state, sum(s.jobs) as jobs
    from (select distinct dibs._source_of(c.state) as name from counted as c where c.is_cut) as t
    cross join lateral dibs._sample(t.name, v_now) as s where s.queue_id = any (v_ids) group by 1, 2
  ), known as (
    select coalesce(c.priority, s.priority) as priority, coalesce(c.state, s.state) as state, w.is_whole,
      coalesce(c.is_cut, true) as is_cut, c.jobs, s.jobs as seen
    from counted as c full join sampled as s on s.priority = c.priority and s.state = c.state
    cross join lateral (
      select dibs._pages_per_sample(dibs._source_of(coalesce(c.state, s.state))) = 1 as is_whole) as w
  ), told as (
    select k.priority, k.state, k.is_cut and not k.is_whole as is_estimate,
      case when not k.is_cut then k.jobs::bigint when k.is_whole then coalesce(k.seen, 0)::bigint
        else dibs._rounded(greatest(k.jobs, k.seen)) end as jobs
    from known as k
  )
  select t.priority, coalesce(sum(t.jobs) filter (where t.state = 'scheduled'), 0)::bigint,
    coalesce(sum(t.jobs) filter (where t.state = 'ready'), 0)::bigint,
    coalesce(sum(t.jobs) filter (where t.state = 'blocked'), 0)::bigint,
    coalesce(sum(t.jobs) filter (where t.state = 'running'), 0)::bigint,
    coalesce(array_agg(t.state order by t.state) filter (where t.is_estimate), '{}')
  from told as t group by t.priority having sum(t.jobs) > 0 order by t.priority desc;
end
$$;

comment on function dibs.depth_by_priority is
'How many jobs of a queue wait and run, by priority, the highest first; what has none is left out. Large numbers are estimates, as in
`depth`, and `estimated` names them.';
