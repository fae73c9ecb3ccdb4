-- statistics: what happened, in numbers.

create or replace function dibs.statistics(
  queue text default null, kind text default null, since interval default interval '1 hour', every interval default null)
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
  v_now timestamptz := dibs.now();
  v_queue integer := case when statistics.queue is not null then dibs._queue_number(statistics.queue) end;
  v_mine integer[] := dibs.confined_to();
  v_grain text := case when since <= (select o.stat_minutes from dibs.setting as o) then 'minute' else 'hour' end;
begin
  if since is null or since not between interval '1 minute' and interval '10 years' then
    raise exception using errcode = 'DI010',
      message = format('statistics go back from 1 minute to 10 years, not %s', coalesce(since::text, 'null'));
  end if;
  if every < interval '1 minute' or every > since or extract(month from every) <> 0 or extract(year from every) <> 0 then
    raise exception using errcode = 'DI010',
      message = format('statistics are told for each minute or longer, within the time asked for, not each %s', every),
      hint = 'give minutes, hours or days, such as every => ''5 minutes''';
  end if;
  return query
  with found as materialized (
    select case when every is not null then date_bin(every, s.at, timestamptz '2000-01-01 00:00Z') end as slot, s.*
    from (
      select m.* from dibs.stat as m where m.grain = v_grain
      union all
      select e.queue_id, e.kind, e.grain, e.at, e.succeeded, e.failed, e.lost, e.snoozed, e.released, e.cancelled,
        e.expired, e.runs, e.run_us, e.run_max_us, e.waits, e.wait_us, e.wait_max_us, e.last_at, e.last_us,
        e.run_counts, e.wait_counts
      from dibs.stat_early as e
    ) as s
    where s.at > v_now - since - case v_grain when 'hour' then interval '1 hour' else interval '1 minute' end
      and (v_queue is null or s.queue_id = v_queue) and (v_mine is null or s.queue_id = any (v_mine)) and (statistics.kind is null or s.kind = statistics.kind)
  ), told as (
    select f.queue_id, f.kind, f.slot, sum(f.succeeded)::bigint as succeeded, sum(f.failed)::bigint as failed,
      sum(f.lost)::bigint as lost, sum(f.snoozed)::bigint as snoozed, sum(f.released)::bigint as released,
      sum(f.cancelled)::bigint as cancelled, sum(f.expired)::bigint as expired, sum(f.runs)::bigint as runs,
      sum(f.run_us) as run_us, max(f.run_max_us) as run_max_us, sum(f.waits)::bigint as waits, sum(f.wait_us) as wait_us,
      max(f.wait_max_us) as wait_max_us
    from found as f group by 1, 2, 3
  ), bars as (
    select b.queue_id, b.kind, b.slot, array_agg(b.run order by b.n) as run, array_agg(b.wait order by b.n) as wait
    from (
      select f.queue_id, f.kind, f.slot, b.n, coalesce(sum(b.run), 0)::bigint as run, coalesce(sum(b.wait), 0)::bigint as wait
      from found as f cross join lateral unnest(f.run_counts, f.wait_counts) with ordinality as b (run, wait, n)
      group by 1, 2, 3, 4
    ) as b group by 1, 2, 3
  )
  select q.name, t.kind, t.slot, t.succeeded, t.failed, t.lost, t.snoozed, t.released, t.cancelled, t.expired,
    t.runs, dibs._mean_of(t.run_us, t.runs), dibs._span_of(t.run_max_us, t.runs), dibs._quantile(b.run, 0.5, t.run_max_us),
    dibs._quantile(b.run, 0.95, t.run_max_us), dibs._quantile(b.run, 0.99, t.run_max_us),
    t.waits, dibs._mean_of(t.wait_us, t.waits), dibs._span_of(t.wait_max_us, t.waits),
    dibs._quantile(b.wait, 0.5, t.wait_max_us), dibs._quantile(b.wait, 0.95, t.wait_max_us),
    dibs._quantile(b.wait, 0.99, t.wait_max_us)
  from told as t join dibs.queue as q on q.id = t.queue_id
  left join bars as b on b.queue_id = t.queue_id and b.kind = t.kind and b.slot is not distinct from t.slot
  order by q.name, t.kind, t.slot;
end
$$;

comment on function dibs.statistics is
'What happened in the time `since`, by queue and kind: runs by outcome, jobs that expired or were cancelled unrun, and how
long runs took and first runs were waited for. With `every`, a row for each such time in which anything happened.
Counted by the minute; beyond what is kept by the minute, by the hour. `roll_up` keeps it up to date.';
