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

create or replace function dibs._group_concurrency_cap(queue dibs.queue, running bigint, at timestamptz)
returns double precision
language plpgsql stable
as $$
declare
  v_ids integer[] := dibs._queue_numbers((queue).id);
  v_max constant integer := dibs._count_bound();
  v_group_keys uuid[];
  v_in_groups bigint;
  v_ungrouped double precision;
begin
  if not (queue).has_group_policy then
    return null;
  end if;
  -- The rotation of the noisy groups of a queue has its negated id.
  v_group_keys := array(
    select p.group_key from dibs.group_pointer as p
    where p.queue_id = any (v_ids || array(select -n from unnest(v_ids) as n)) limit v_max + 1);
  if cardinality(v_group_keys) > v_max then
    return null;
  end if;
  select case when not coalesce(bool_or(p.concurrency is null), false) then coalesce(sum(p.concurrency), 0) end
  into v_in_groups
  from (select distinct k as group_key from unnest(v_group_keys) as k) as g
  left join lateral dibs._find_group_policy((queue).id, g.group_key) as p on true;
  select case when not bool_or(c.is_cut) then sum(c.jobs) end into v_ungrouped
  from dibs._count_ungrouped((queue).id, at, v_max, false) as c where c.state = 'ready';
  -- A full group has no pointer, but its jobs are among those that run.
  return v_in_groups + v_ungrouped + running;
end
$$;

comment on function dibs._group_concurrency_cap is
'An upper bound for the jobs of a queue that may run at once: the concurrency of all groups that have a pointer, as only
these can start jobs, the ready jobs without a group, and the running jobs. Null, for no cap, if a group has no
concurrency, or if there are too many groups or jobs to count.';

create or replace function dibs._concurrency_cap(
  queue dibs.queue, run_seconds double precision, running bigint, at timestamptz) returns double precision
language sql stable
return least(
  (select least(r.concurrency, r.rate * run_seconds) from dibs.limit_rule as r
   where r.is_set and r.of_queue = (queue).name),
  dibs._group_concurrency_cap(queue, running, at));

comment on function dibs._concurrency_cap is
'The most jobs of a queue that may run at once, by its limit, its rate and the concurrency of its groups; null without a
cap. `run_seconds` is how long a run takes: a rate of 2 per second allows 2 * run_seconds at once.';

create or replace function dibs._wanted_concurrency(
  queue dibs.queue, ready bigint, blocked bigint, running bigint, arriving double precision,
  run_seconds double precision, target_seconds double precision, at timestamptz,
  out load double precision, out at_once double precision)
language plpgsql stable
as $$
begin
  -- A blocked job starts when another one ends, in its place: however many are blocked, they need one slot.
  load := case when (queue).paused_at is not null or ready + blocked + running = 0 then 0
    else greatest((arriving + ready / target_seconds) * run_seconds, (blocked > 0)::integer) end;
  at_once := greatest(least(load, dibs._concurrency_cap(queue, run_seconds, running, at)), running);
end
$$;

comment on function dibs._wanted_concurrency is
'The number of jobs of a queue that should run at once. `load` is the number that keeps up with the jobs that arrive and
starts the ready ones within the target; `at_once` is `load` within the limits, but never below the number that runs
now: a worker that is stopped too early repeats its jobs. All times are in seconds.';
