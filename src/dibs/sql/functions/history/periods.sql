-- periods: what happened over time, in numbers for a chart.

create or replace function dibs._period_stats(queue text, kind text, since interval, every interval)
returns setof dibs.stat
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_queue integer := case when _period_stats.queue is not null then dibs._queue_number(_period_stats.queue) end;
  v_mine integer[] := dibs.confined_to();
begin
  perform dibs._check_period(since, every);
  return query
  select s.* from dibs.stat as s
  -- Hours are few, so a period of an hour or more is read from them.
  where s.grain = case when every < interval '1 hour' then 'minute' else 'hour' end
    and s.at > date_bin(every, dibs.now() - since, timestamptz '2000-01-01 00:00Z')
    and (v_mine is null or s.queue_id = any (v_mine))
    and (v_queue is null or s.queue_id = v_queue)
    and (_period_stats.kind is null or s.kind = _period_stats.kind);
end
$$;

comment on function dibs._period_stats is 'The counts that periods of this length, in the last `since`, are made of.';

create or replace function dibs.periods(
  queue text default null, kind text default null, since interval default interval '1 hour',
  every interval default interval '1 minute')
returns table (
  at timestamptz, succeeded bigint, failed bigint, lost bigint, cancelled bigint, expired bigint, run_p50 interval,
  run_p95 interval, wait_p50 interval, wait_p95 interval)
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  with part as materialized (
    select date_bin(every, s.at, timestamptz '2000-01-01 00:00Z') as slot, s.*
    from dibs._period_stats(periods.queue, periods.kind, since, every) as s
  ), runs as (
    select p.slot, dibs._bars(array_agg(b.bar::integer), array_agg(b.times)) as counts
    from part as p cross join lateral unnest(p.run_counts) with ordinality as b (times, bar)
    where b.times > 0 group by p.slot
  ), waits as (
    select p.slot, dibs._bars(array_agg(b.bar::integer), array_agg(b.times)) as counts
    from part as p cross join lateral unnest(p.wait_counts) with ordinality as b (times, bar)
    where b.times > 0 group by p.slot
  )
  select t.slot, t.succeeded, t.failed, t.lost, t.cancelled, t.expired,
    dibs._quantile(r.counts, 0.5, t.run_max_us), dibs._quantile(r.counts, 0.95, t.run_max_us),
    dibs._quantile(w.counts, 0.5, t.wait_max_us), dibs._quantile(w.counts, 0.95, t.wait_max_us)
  from (
    select p.slot, sum(p.succeeded)::bigint as succeeded, sum(p.failed)::bigint as failed, sum(p.lost)::bigint as lost,
      sum(p.cancelled)::bigint as cancelled, sum(p.expired)::bigint as expired, max(p.run_max_us) as run_max_us,
      max(p.wait_max_us) as wait_max_us
    from part as p group by p.slot
  ) as t
  left join runs as r on r.slot = t.slot
  left join waits as w on w.slot = t.slot
  order by t.slot;
end;

comment on function dibs.periods is
'What happened over time, all kinds together: a row for each period of length `every` within the last `since` in which
anything happened, with how long runs took and were waited for. Periods shorter than an hour are counted from minutes,
as far as those are kept.';

create or replace function dibs.queue_rates(
  since interval default interval '1 hour', every interval default interval '5 minutes')
returns table (in_queue text, at timestamptz, succeeded bigint, failed bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select q.name, date_bin(every, s.at, timestamptz '2000-01-01 00:00Z'), sum(s.succeeded)::bigint,
    sum(s.failed + s.lost)::bigint
  from dibs._period_stats(null, null, since, every) as s join dibs.queue as q on q.id = s.queue_id
  group by 1, 2 order by 1, 2;
end;

comment on function dibs.queue_rates is
'How many runs of each queue succeeded and failed (or were lost), for each period of length `every` in the last `since`.';
