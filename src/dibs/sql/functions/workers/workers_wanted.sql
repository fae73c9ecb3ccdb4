-- workers_wanted: how many workers an autoscaler should run.

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

comment on function dibs._check_scaling is 'Raise DI010 if an argument of workers_wanted is out of range.';

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
  v_queues dibs.queue[] := array(
    select q from dibs.queue as q
    where (q.id = v_queue or v_queue is null and q.shard_of is null)
      and (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true)));
  v_ids integer[] := array(select (q).id from unnest(v_queues) as q);
begin
  perform dibs._check_scaling(target, workers_wanted.slots, run_time);
  return query
  with counted as materialized (
    select c.queue_id, coalesce(sum(c.jobs) filter (where c.state = 'ready'), 0)::bigint as ready,
      coalesce(sum(c.jobs) filter (where c.state = 'blocked'), 0)::bigint as blocked,
      coalesce(sum(c.jobs) filter (where c.state = 'running'), 0)::bigint as running
    from dibs._count_states(v_ids, v_now, '{ready,blocked,lease}') as c group by c.queue_id
  ), enqueued as materialized (
    select dibs._shown_queue(r.queue_id) as queue_id, sum(r.per_second) as per_second
    from dibs._enqueue_rates(v_now - interval '5 minutes', v_now) as r group by 1
  )
  select q.name, least(ceil(wanted.at_once / worker.slots), q.shards, 1000000)::integer,
    coalesce(live.workers, 0)::integer, c.ready, c.blocked, c.running, coalesce(e.per_second, 0),
    run.seconds * interval '1 second', worker.slots,
    wanted.load > wanted.at_once or coalesce(ceil(wanted.at_once / worker.slots) > q.shards, false)
  from unnest(v_queues) as q
  join counted as c on c.queue_id = q.id
  left join enqueued as e on e.queue_id = q.id
  left join dibs._slots_by_queue(v_now) as live on live.queue = q.name
  left join dibs._mean_run_times(v_ids, v_now) as mean on mean.queue_id = q.id
  cross join lateral (select coalesce(extract(epoch from run_time), mean.seconds) as seconds) as run
  cross join lateral (select coalesce(workers_wanted.slots, live.slots, 100) as slots) as worker
  cross join lateral dibs._wanted_concurrency(q, c.ready, c.blocked, c.running, coalesce(e.per_second, 0),
    greatest(coalesce(run.seconds, 1), 0.001), v_target, v_now) as wanted
  order by q.name;
end
$$;

comment on function dibs.workers_wanted is
'The number of workers that a queue, or each queue without a name, needs now: enough to keep up with arriving jobs, to
start the ready ones within `target`, and to go on with those that run; no more than its limits, groups and shards can
use. 0 if nothing is due and nothing runs, and for a paused queue in which nothing runs. `slots` is the number of jobs
one worker runs at once; without it, the number that the live workers report, or 100. `run_time` is the time of a run;
without it, the measured mean, or one second before anything was measured. The call costs the same however many jobs
there are: large numbers are estimates, as in `depth`.';
