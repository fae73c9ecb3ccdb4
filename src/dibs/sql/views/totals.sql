-- Each kind of job in a line: totals, the last run, and averages.

create or replace view dibs.totals as
select q.name as queue, k.kind, t.succeeded, t.failed, t.lost, t.snoozed, t.released, t.cancelled, t.expired,
  t.last_at as last_ended_at, t.last_us * interval '1 microsecond' as last_run,
  t.run_us / t.runs * interval '1 microsecond' as run_mean, h.run_us / h.runs * interval '1 microsecond' as run_hour,
  d.run_us / d.runs * interval '1 microsecond' as run_day, w.run_us / w.runs * interval '1 microsecond' as run_week,
  t.wait_us / t.waits * interval '1 microsecond' as wait_mean, h.wait_us / h.waits * interval '1 microsecond' as wait_hour,
  d.wait_us / d.waits * interval '1 microsecond' as wait_day, w.wait_us / w.waits * interval '1 microsecond' as wait_week,
  coalesce(t.run_us, 0) * interval '1 microsecond' as run_total, t.run_max_us * interval '1 microsecond' as run_max
from (
  select s.queue_id, s.kind from dibs.stat as s where s.grain = 'ever'
  union
  select e.queue_id, e.kind from dibs.stat_early as e
) as k
join dibs.queue as q on q.id = k.queue_id
cross join lateral (select dibs.now() as at) as n
cross join lateral (
  select sum(a.succeeded)::bigint as succeeded, sum(a.failed)::bigint as failed, sum(a.lost)::bigint as lost,
    sum(a.snoozed)::bigint as snoozed, sum(a.released)::bigint as released, sum(a.cancelled)::bigint as cancelled,
    sum(a.expired)::bigint as expired, max(a.last_at) as last_at,
    (array_agg(a.last_us order by a.last_at desc nulls last))[1] as last_us, max(a.run_max_us) as run_max_us,
    sum(a.run_us)::double precision as run_us, nullif(sum(a.runs), 0)::double precision as runs,
    sum(a.wait_us)::double precision as wait_us, nullif(sum(a.waits), 0)::double precision as waits
  from (
    select s.succeeded, s.failed, s.lost, s.snoozed, s.released, s.cancelled, s.expired, s.last_at, s.last_us, s.run_us,
      s.runs, s.run_max_us, s.wait_us, s.waits
    from dibs.stat as s where s.queue_id = k.queue_id and s.kind = k.kind and s.grain = 'ever'
    union all
    select e.succeeded, e.failed, e.lost, e.snoozed, e.released, e.cancelled, e.expired, e.last_at, e.last_us, e.run_us,
      e.runs, e.run_max_us, e.wait_us, e.waits
    from dibs.stat_early as e where e.queue_id = k.queue_id and e.kind = k.kind
  ) as a
) as t
cross join lateral (
  select sum(a.run_us)::double precision as run_us, nullif(sum(a.runs), 0)::double precision as runs,
    sum(a.wait_us)::double precision as wait_us, nullif(sum(a.waits), 0)::double precision as waits
  from (
    select s.run_us, s.runs, s.wait_us, s.waits from dibs.stat as s
    where s.queue_id = k.queue_id and s.kind = k.kind and s.grain = 'minute' and s.at > n.at - interval '61 minutes'
    union all
    select e.run_us, e.runs, e.wait_us, e.waits from dibs.stat_early as e
    where e.queue_id = k.queue_id and e.kind = k.kind and e.at > n.at - interval '61 minutes'
  ) as a
) as h
cross join lateral (
  select sum(a.run_us)::double precision as run_us, nullif(sum(a.runs), 0)::double precision as runs,
    sum(a.wait_us)::double precision as wait_us, nullif(sum(a.waits), 0)::double precision as waits
  from (
    select s.run_us, s.runs, s.wait_us, s.waits from dibs.stat as s
    where s.queue_id = k.queue_id and s.kind = k.kind and s.grain = 'hour' and s.at > n.at - interval '25 hours'
    union all
    select e.run_us, e.runs, e.wait_us, e.waits from dibs.stat_early as e
    where e.queue_id = k.queue_id and e.kind = k.kind and e.at > n.at - interval '25 hours'
  ) as a
) as d
cross join lateral (
  select sum(a.run_us)::double precision as run_us, nullif(sum(a.runs), 0)::double precision as runs,
    sum(a.wait_us)::double precision as wait_us, nullif(sum(a.waits), 0)::double precision as waits
  from (
    select s.run_us, s.runs, s.wait_us, s.waits from dibs.stat as s
    where s.queue_id = k.queue_id and s.kind = k.kind and s.grain = 'hour' and s.at > n.at - interval '169 hours'
    union all
    select e.run_us, e.runs, e.wait_us, e.waits from dibs.stat_early as e
    where e.queue_id = k.queue_id and e.kind = k.kind and e.at > n.at - interval '169 hours'
  ) as a
) as w
where (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true));

comment on view dibs.totals is
'Each kind of job with its totals, its last run, and how long its runs took and were waited for on average, ever and in the
last hour, day and week.';
