-- Totals, the last run and averages for each kind of job.

create or replace view dibs.totals with (security_barrier) as
select q.name as queue, t.kind, t.succeeded, t.failed, t.lost, t.snoozed, t.released, t.cancelled, t.expired,
  t.last_at as last_ended_at, t.last_us * interval '1 microsecond' as last_run,
  m.run_ever as run_mean, m.run_hour, m.run_day, m.run_week,
  m.wait_ever as wait_mean, m.wait_hour, m.wait_day, m.wait_week,
  t.run_us * interval '1 microsecond' as run_total, t.run_max_us * interval '1 microsecond' as run_max
from dibs.stat as t
join dibs.queue as q on q.id = t.queue_id
cross join lateral (select dibs.now() as at) as n
cross join lateral (
  select max(s.run) filter (where p.name = 'ever') as run_ever, max(s.wait) filter (where p.name = 'ever') as wait_ever,
    max(s.run) filter (where p.name = 'hour') as run_hour, max(s.wait) filter (where p.name = 'hour') as wait_hour,
    max(s.run) filter (where p.name = 'day') as run_day, max(s.wait) filter (where p.name = 'day') as wait_day,
    max(s.run) filter (where p.name = 'week') as run_week, max(s.wait) filter (where p.name = 'week') as wait_week
  from (values
    ('ever', 'ever', timestamptz '-infinity'),
    ('hour', 'minute', n.at - interval '61 minutes'),
    ('day', 'hour', n.at - interval '25 hours'),
    ('week', 'hour', n.at - interval '169 hours')) as p (name, grain, since)
  cross join lateral (
    select sum(s.run_us)::double precision / nullif(sum(s.runs), 0)::double precision * interval '1 microsecond' as run,
      sum(s.wait_us)::double precision / nullif(sum(s.waits), 0)::double precision * interval '1 microsecond' as wait
    from dibs.stat as s
    where s.queue_id = t.queue_id and s.kind = t.kind and s.grain = p.grain and s.at > p.since
  ) as s
) as m
where t.grain = 'ever' and (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true));

comment on view dibs.totals is
'One row for each queue and kind: totals since the install, the last run, and the mean duration of runs and of waits for
the first run: of all time and of the last hour, day and week.';
