-- The numbers behind workers_wanted: live workers, mean run times, and how many jobs may run at once.

create or replace function dibs._slots_by_queue(at timestamptz)
returns table (queue text, workers bigint, slots double precision)
language sql stable
begin atomic
  -- A worker may report anything: ignore slots that are not a number, and bound the others.
  select q.name, count(*), avg(least(greatest(w.slots, 1), 1000000))::double precision
  from (
    select w.facts,
      case when jsonb_typeof(w.facts -> 'slots') = 'number' then (w.facts ->> 'slots')::numeric end as slots
    from dibs._live_workers(at) as w where jsonb_typeof(w.facts -> 'queues') = 'array'
  ) as w
  cross join lateral (select distinct n.name from jsonb_array_elements_text(w.facts -> 'queues') as n (name)) as q
  group by q.name;
end;

comment on function dibs._slots_by_queue is
'For each queue that a live worker serves: how many live workers do, and how many jobs one of them runs at once, on
average; `slots` is null if none reports it.';

create or replace function dibs._mean_run_times(queues integer[], at timestamptz)
returns table (queue_id integer, seconds double precision)
language sql stable
begin atomic
  select s.queue_id, coalesce(
    sum(s.run_us) filter (where s.grain = 'hour')::double precision
      / nullif(sum(s.runs) filter (where s.grain = 'hour'), 0),
    sum(s.run_us) filter (where s.grain = 'ever')::double precision
      / nullif(sum(s.runs) filter (where s.grain = 'ever'), 0)) / 1000000
  from (
    select h.queue_id, h.grain, h.runs, h.run_us from dibs.stat as h
    where h.grain = 'hour' and h.at > _mean_run_times.at - interval '2 hours'
    union all
    select e.queue_id, e.grain, e.runs, e.run_us from dibs.stat as e where e.grain = 'ever'
  ) as s
  where s.queue_id = any (queues) group by s.queue_id;
end;

comment on function dibs._mean_run_times is
'The mean time of a run of each queue in seconds: in this hour and the one before, otherwise ever; null if none was
measured.';

create or replace function dibs._concurrency_cap(queue dibs.queue, run_seconds double precision, running bigint)
returns double precision
language plpgsql stable
as $$
declare
  v_limit double precision := (
    select least(r.concurrency, r.rate * run_seconds) from dibs.limit_rule as r
    where r.is_set and r.of_queue = (queue).name);
  v_group_concurrency integer := (
    select p.concurrency from dibs.group_policy as p where p.queue_id = (queue).id and p.group_key = dibs._nil_id());
  v_groups bigint;
begin
  if v_group_concurrency is not null then
    -- Groups with a pointer can start jobs. A full group has none, but its jobs are among those that run.
    select case when count(*) <= dibs._count_bound() then count(distinct p.group_key) end into v_groups
    from (
      select p.group_key from dibs.group_pointer as p where p.queue_id = any (dibs._queue_numbers((queue).id))
      limit dibs._count_bound() + 1) as p;
  end if;
  return least(v_limit, v_group_concurrency * v_groups + running);
end
$$;

comment on function dibs._concurrency_cap is
'The most jobs of a queue that may run at once, by its limit, its rate and the concurrency of its groups; null without a
cap. `run_seconds` is how long a run takes: a rate of 2 per second allows 2 * run_seconds at once.';

create or replace function dibs._wanted_concurrency(
  queue dibs.queue, ready bigint, blocked bigint, running bigint, arriving double precision,
  run_seconds double precision, target_seconds double precision,
  out load double precision, out at_once double precision)
language plpgsql stable
as $$
begin
  -- A blocked job starts when another one ends, in its place: however many are blocked, they need one slot.
  load := case when (queue).paused_at is not null or ready + blocked + running = 0 then 0
    else greatest((arriving + ready / target_seconds) * run_seconds, (blocked > 0)::integer) end;
  at_once := greatest(least(load, dibs._concurrency_cap(queue, run_seconds, running)), running);
end
$$;

comment on function dibs._wanted_concurrency is
'The number of jobs of a queue that should run at once. `load` is the number that keeps up with the jobs that arrive and
starts the ready ones within the target; `at_once` is `load` within the limits, but never below the number that runs
now: a worker that is stopped too early repeats its jobs. All times are in seconds.';
