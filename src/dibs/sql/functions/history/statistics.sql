-- statistics: what happened, in numbers.

create or replace function dibs.statistics(
  queue text default null, kind text default null, since interval default interval '1 hour',
  every interval default null)
returns table (
  in_queue text, of_kind text, at timestamptz, succeeded bigint, failed bigint, lost bigint, snoozed bigint,
  released bigint, cancelled bigint, expired bigint, runs bigint, run_mean interval, run_max interval, run_p50 interval,
  run_p95 interval, run_p99 interval, waits bigint, wait_mean interval, wait_max interval, wait_p50 interval,
  wait_p95 interval, wait_p99 interval)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_queue integer := case when statistics.queue is not null then dibs._queue_number(statistics.queue) end;
begin
  perform dibs._check_period(since, every);
  return query
  select q.name, s.kind, s.at, s.succeeded, s.failed, s.lost, s.snoozed, s.released, s.cancelled, s.expired,
    s.runs, dibs._mean_of(s.run_us, s.runs), dibs._span_of(s.run_max_us, s.runs),
    dibs._quantile(s.run_counts, 0.5, s.run_max_us), dibs._quantile(s.run_counts, 0.95, s.run_max_us),
    dibs._quantile(s.run_counts, 0.99, s.run_max_us),
    s.waits, dibs._mean_of(s.wait_us, s.waits), dibs._span_of(s.wait_max_us, s.waits),
    dibs._quantile(s.wait_counts, 0.5, s.wait_max_us), dibs._quantile(s.wait_counts, 0.95, s.wait_max_us),
    dibs._quantile(s.wait_counts, 0.99, s.wait_max_us)
  from dibs._sum_stats(v_queue, statistics.kind, since, every) as s
  join dibs.queue as q on q.id = s.queue_id
  order by q.name, s.kind, s.at;
end
$$;

comment on function dibs.statistics is
'What happened in the last `since`, by queue and kind: runs by outcome, jobs that expired or were cancelled before they
ran, how long runs took, and how long jobs waited for their first run. With `every`, a row for each such period in which
anything happened. Counted by the minute; beyond what is kept by the minute, by the hour. `roll_up` keeps it up to
date.';
