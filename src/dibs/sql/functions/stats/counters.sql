-- counters: what happened since the install, for monitoring.

create or replace function dibs._metric_buckets(counts bigint[]) returns bigint[]
language sql immutable parallel safe
begin atomic
  -- Every eighth bar ends where a bucket does: 1.6 ms, and four times as far each; the last has what took even longer.
  select dibs._histogram(array_agg(least(greatest(ceil((b.bar - 17) / 8.0), 0), 12)::integer + 1), array_agg(b.times))
  from unnest(counts) with ordinality as b (times, bar) where b.times > 0;
end;

comment on function dibs._metric_buckets is
'A histogram with the 13 buckets that metrics have: up to 1.6 ms, 6.4 ms and so on, each four times as far, up to 1.9 hours, and beyond.';

create or replace function dibs.counters()
returns table (
  in_queue text, of_kind text, succeeded bigint, failed bigint, lost bigint, snoozed bigint, released bigint, cancelled bigint,
  expired bigint, run_seconds double precision, run_buckets bigint[], wait_seconds double precision, wait_buckets bigint[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select q.name, s.kind, s.succeeded, s.failed, s.lost, s.snoozed, s.released, s.cancelled, s.expired,
    s.run_us / 1000000::double precision, dibs._metric_buckets(s.run_counts), s.wait_us / 1000000::double precision, dibs._metric_buckets(s.wait_counts)
  from dibs.stat as s join dibs.queue as q on q.id = s.queue_id
  where s.grain = 'ever' and (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true))
  order by s.last_at desc nulls last, q.name, s.kind limit 1000;
end;

comment on function dibs.counters is
'Worker protocol: what happened since the install, by queue and kind, the 1,000 that ran last, in numbers that only rise: runs by outcome, jobs that expired or were cancelled before
they ran, and how long runs took and first runs were waited for, in all and as how many were in each bucket, of which the first
reaches to 1.6 ms and each one four times as far; the last, the thirteenth, has the rest. `roll_up` keeps it up to date.';
