-- workers_wanted: a number for autoscalers.

create or replace function dibs._check_scaling(target interval, slots integer, run_time interval) returns void
language plpgsql immutable
as $$
begin
  if target is null or target not between interval '1 second' and interval '7 days' then
    raise exception using errcode = 'DI010',
      message = format('a target is from 1 second to 7 days, not %s', coalesce(target::text, 'null'));
  end if;
  if slots not between 1 and 1000000 then
    raise exception using errcode = 'DI010', message = format('a worker runs 1 to 1000000 jobs at once, not %s', slots);
  end if;
  if run_time not between interval '1 millisecond' and interval '1 year' then
    raise exception using errcode = 'DI010', message = format('a run takes 1 ms to 1 year, not %s', run_time);
  end if;
end
$$;

comment on function dibs._check_scaling is 'Refuse what workers_wanted cannot reckon with.';

create or replace function dibs.workers_wanted(
  queue text default null, target interval default interval '5 minutes', slots integer default null,
  run_time interval default null)
returns table (
  in_queue text, workers integer, live integer, ready bigint, blocked bigint, running bigint, arriving double precision,
  run_mean interval, jobs_each double precision, limited boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_queue integer := case when workers_wanted.queue is not null then dibs._queue_number(workers_wanted.queue) end;
  v_target double precision := extract(epoch from target);
  v_asked dibs.queue[] := array(
    select q from dibs.queue as q
    where (q.id = v_queue or v_queue is null and q.shard_of is null)
      and (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true)));
  v_ids integer[] := array(select (q).id from unnest(v_asked) as q);
begin
  perform dibs._check_scaling(target, workers_wanted.slots, run_time);
  return query
  with counted as materialized (
    select c.queue_id, coalesce(sum(c.jobs) filter (where c.state = 'ready'), 0)::bigint as ready,
      coalesce(sum(c.jobs) filter (where c.state = 'blocked'), 0)::bigint as blocked,
      coalesce(sum(c.jobs) filter (where c.state = 'running'), 0)::bigint as running
    from dibs._count_states(v_ids, v_now, '{ready,blocked,lease}') as c group by c.queue_id
  ), arrivals as materialized (
    select dibs._shown_queue(a.queue_id) as queue_id, sum(a.per_second) as arriving
    from dibs._enqueue_rates(v_now - interval '5 minutes', v_now) as a group by 1
  )
  select q.name, least(ceil(w.at_once / e.jobs), q.shards, 1000000)::integer, coalesce(l.workers, 0)::integer, c.ready, c.blocked,
    c.running, coalesce(a.arriving, 0), m.seconds * interval '1 second', e.jobs,
    w.load > w.at_once or coalesce(ceil(w.at_once / e.jobs) > q.shards, false)
  from unnest(v_asked) as q
  join counted as c on c.queue_id = q.id
  left join arrivals as a on a.queue_id = q.id
  left join dibs._slots_by_queue(v_now) as l on l.queue = q.name
  left join dibs._mean_run_times(v_ids, v_now) as s on s.queue_id = q.id
  cross join lateral (select coalesce(extract(epoch from run_time), s.seconds) as seconds) as m
  cross join lateral (select coalesce(workers_wanted.slots, l.slots, 100) as jobs) as e
  cross join lateral dibs._wanted_concurrency(q, c.ready, c.blocked, c.running, coalesce(a.arriving, 0), greatest(coalesce(m.seconds, 1), 0.001), v_target)
    as w
  order by q.name;
end
$$;

comment on function dibs.workers_wanted is
'How many workers a queue, or each queue, needs now: enough to keep up with what comes and to do what is due within `target`, enough for
what runs, and no more than its limits, groups and shards can use. 0 when nothing is due and nothing runs, and for a paused queue in
which nothing runs. `slots` is how many jobs one worker runs at once; without it, what the live workers say, or 100.
`run_time` is how long a run takes; without it, as measured, or one second before anything was. It costs the same
however much there is: large numbers are estimates, as in `depth`.';
