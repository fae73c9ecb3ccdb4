-- statistics: counts and durations of runs in a time.

create or replace function dibs.statistics(
  queue text default null, kind text default null, since interval default interval '1 hour',
  every interval default null, by text[] default '{queue,kind}')
returns table (
  in_queue text, of_kind text, at timestamptz, succeeded bigint, failed bigint, lost bigint, snoozed bigint,
  released bigint, cancelled bigint, expired bigint, runs bigint, run_mean interval, run_max interval, run_p50 interval,
  run_p95 interval, run_p99 interval, waits bigint, wait_mean interval, wait_max interval, wait_p50 interval,
  wait_p95 interval, wait_p99 interval)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform dibs._check_period(since, every);
  perform dibs._check_grouping(statistics.by);
  return query
  with part as materialized (
    select dense_rank() over (order by s.queue_id, s.kind, s.at) as set_no, s.* from dibs._find_stat_rows(
      statistics.queue, statistics.kind, since, every, 'queue' = any (statistics.by), 'kind' = any (statistics.by)) as s
  ), counts as (
    select p.set_no, b.bar, sum(b.run)::bigint as run, sum(b.wait)::bigint as wait
    from part as p cross join lateral unnest(p.run_counts, p.wait_counts) with ordinality as b (run, wait, bar)
    where b.run > 0 or b.wait > 0 group by p.set_no, b.bar
  ), histograms as (
    select c.set_no, array_agg(c.bar) as bars, array_agg(c.run) as run, array_agg(c.wait) as wait
    from counts as c group by c.set_no
  ), sums as (
    select p.set_no, min(p.queue_id) as queue_id, min(p.kind) as kind, min(p.at) as at,
      sum(p.succeeded)::bigint as succeeded, sum(p.failed)::bigint as failed, sum(p.lost)::bigint as lost,
      sum(p.snoozed)::bigint as snoozed,
      sum(p.released)::bigint as released, sum(p.cancelled)::bigint as cancelled, sum(p.expired)::bigint as expired,
      sum(p.runs)::bigint as runs, sum(p.run_us) as run_us, max(p.run_max_us) as run_max_us,
      sum(p.waits)::bigint as waits, sum(p.wait_us) as wait_us, max(p.wait_max_us) as wait_max_us
    from part as p group by p.set_no
  )
  select q.name, s.kind, s.at, s.succeeded, s.failed,
    s.lost, s.snoozed, s.released, s.cancelled, s.expired,
    s.runs, dibs._mean_duration(s.run_us, s.runs),
    case when s.runs > 0 then s.run_max_us * interval '1 microsecond' end,
    dibs._quantile(h.bars, h.run, 0.5, s.run_max_us), dibs._quantile(h.bars, h.run, 0.95, s.run_max_us),
    dibs._quantile(h.bars, h.run, 0.99, s.run_max_us),
    s.waits, dibs._mean_duration(s.wait_us, s.waits),
    case when s.waits > 0 then s.wait_max_us * interval '1 microsecond' end,
    dibs._quantile(h.bars, h.wait, 0.5, s.wait_max_us), dibs._quantile(h.bars, h.wait, 0.95, s.wait_max_us),
    dibs._quantile(h.bars, h.wait, 0.99, s.wait_max_us)
  from sums as s
  left join histograms as h on h.set_no = s.set_no
  left join dibs.queue as q on q.id = s.queue_id
  order by q.name, s.kind, s.at;
end
$$;

comment on function dibs.statistics is
'Return counts and durations of the last `since`: runs by outcome, jobs that expired or were cancelled before they ran,
how long runs took, and how long jobs waited for their first run. Grouped by queue and kind, or by the words of `by`:
`{queue}`, `{kind}`, or `{}` for one sum; a column that is not grouped by is null. With `every`, one row for each such
period in which anything happened; periods begin at multiples of their length, days at midnight UTC. Periods of whole
hours are counted from hours, other ones from minutes, if those are still kept. Without periods, minutes are counted if
they are kept for that long, and otherwise hours. The minute, hour or period in which `since` begins is counted as a
whole. `roll_up` keeps the numbers up to date.';
