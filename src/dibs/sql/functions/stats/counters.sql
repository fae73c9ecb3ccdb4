-- counters: counts and durations since the install, for monitoring.

create or replace function dibs._metric_bucket_of(bar bigint) returns integer
language sql immutable parallel safe
return case when bar <= 17 then 1 else least(2 + (bar - 18) / 8, 13)::integer end;

comment on function dibs._metric_bucket_of is
'Return the bucket (1 to 13) of a bar. Bucket 1 has the bars 1 to 17, which end at 1.6 ms. Each of the next has eight
bars and reaches four times as far, to bar 105 and 1.9 hours. Bucket 13 has the rest.';

create or replace function dibs._metric_buckets(counts bigint[]) returns bigint[]
language sql immutable parallel safe
begin atomic
  select dibs._histogram(array_agg(dibs._metric_bucket_of(b.bar)), array_agg(b.times))
  from unnest(counts) with ordinality as b (times, bar) where b.times > 0;
end;

comment on function dibs._metric_buckets is
'Convert a histogram to the buckets of metrics: one count for each bucket, up to the last that has any.';

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
'Worker protocol: return counts since the install by queue and kind, for the 1,000 that ran last. The numbers of a queue
and kind only rise. Runs by outcome, jobs that expired or were cancelled before they ran, and the durations of runs and
of waits for the first run, as a sum of seconds and as counts in 13 buckets: bucket 1 reaches to 1.6 ms, each following
one four times as far, and the last has the rest. `roll_up` keeps the numbers up to date.';
