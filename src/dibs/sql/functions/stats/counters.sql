-- counters: counts and durations since the install, for monitoring.

create or replace function dibs._metric_buckets(counts bigint[]) returns bigint[]
language sql immutable parallel safe
begin atomic
  -- Bar 17 ends at 1.6 ms, and so does bucket 1. Eight bars make a bucket, four times as far; the last has the rest.
  select dibs._histogram(array_agg(least(greatest(ceil((b.bar - 17) / 8.0), 0), 12)::integer + 1), array_agg(b.times))
  from unnest(counts) with ordinality as b (times, bar) where b.times > 0;
end;

comment on function dibs._metric_buckets is
'Convert a histogram to the 13 buckets of metrics: up to 1.6 ms, 6.4 ms and so on to 1.9 hours, and beyond.';

create or replace function dibs.counters()
returns table (
  in_queue text, of_kind text, succeeded bigint, failed bigint, lost bigint, snoozed bigint, released bigint,
  cancelled bigint, expired bigint, run_seconds double precision, run_buckets bigint[], wait_seconds double precision,
  wait_buckets bigint[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select q.name, s.kind, s.succeeded, s.failed, s.lost, s.snoozed, s.released, s.cancelled, s.expired,
    s.run_us / 1000000::double precision, dibs._metric_buckets(s.run_counts),
    s.wait_us / 1000000::double precision, dibs._metric_buckets(s.wait_counts)
  from dibs.stat as s join dibs.queue as q on q.id = s.queue_id
  where s.grain = 'ever' and (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true))
  order by s.last_at desc nulls last, q.name, s.kind limit 1000;
end;

comment on function dibs.counters is
'Worker protocol: counts since the install by queue and kind, for the 1,000 that ran last; the numbers only rise. Runs
by outcome, jobs that expired or were cancelled before they ran, and the durations of runs and of waits for the first
run, as a sum of seconds and as counts in 13 buckets: bucket 1 reaches to 1.6 ms, each following one four times as far,
and the last has the rest. `roll_up` keeps the numbers up to date.';
