-- Schedules and their runs, without payloads.

create or replace view dibs.schedule_runs with (security_barrier) as
select s.name as schedule, r.slot, r.id, r.triggered, r.fired_at, r.failures, r.outcome, r.ended_at, r.duration
from dibs.schedule_run as r join dibs.schedule as s on s.id = r.schedule_id
where (select dibs.confined_to()) is null or exists (
  select from dibs.queue as q where q.name = s.job ->> 'queue' and q.id = any ((select dibs.confined_to())::integer[]));

comment on view dibs.schedule_runs is
'The jobs that schedules made, for 8 days after they ended. `outcome` and `ended_at` are null until a scheduler has seen
that the job ended.';

create or replace view dibs.schedules with (security_barrier) as
select s.name, s.app, s.declared_by::text as declared_by, s.job ->> 'queue' as queue, s.job ->> 'kind' as kind,
  case
    when s.retired_at is not null then 'retired'
    when s.paused_at is not null then 'paused'
    when s.ended_at is not null then 'ended'
    when s.failed_attempts > 0 or s.failed_runs > 0 or s.status_message is not null then 'failing'
    else 'healthy'
  end as status,
  s.status_message, s.rule, s.cron, s.every, s.once, s.zone, s.start_at, s.end_at, s.jitter, s.overlap, s.catch_up,
  s.grace, s.on_failure, s.pause_after, s.next_scheduled,
  case when s.paused_at is null and s.retired_at is null then least(s.tick_at, o.retry_at)
    else o.retry_at end as next_attempt,
  s.held, o.running as open_runs, s.last_slot, s.last_job, s.last_attempt, s.last_success, s.failed_attempts,
  s.failed_runs,
  s.fired, s.succeeded, s.skipped, s.missed, s.last_duration,
  s.total_duration / nullif(s.succeeded, 0) as average_duration, s.total_duration,
  h.average_hour, h.average_day, h.average_week,
  s.paused_at, s.pause_reason, s.ended_at, s.retired_at, s.created_at, s.revision, s.handled_until
from dibs.schedule as s
cross join lateral (
  select count(*) as running, min(w.due_at) filter (where w.charged > 0) as retry_at
  from dibs.schedule_run as r left join dibs.ready as w on w.id = r.id
  where r.schedule_id = s.id and r.ended_at is null) as o
cross join lateral (
  select avg(r.duration) filter (where r.ended_at > n.at - interval '1 hour') as average_hour,
    avg(r.duration) filter (where r.ended_at > n.at - interval '1 day') as average_day,
    avg(r.duration) as average_week
  from (select dibs.now() as at) as n
  join dibs.schedule_run as r
    on r.schedule_id = s.id and r.outcome = 'succeeded' and r.ended_at > n.at - interval '7 days') as h
where (select dibs.confined_to()) is null or exists (
  select from dibs.queue as q where q.name = s.job ->> 'queue' and q.id = any ((select dibs.confined_to())::integer[]));

comment on view dibs.schedules is
'All schedules: rule, next slot (next_scheduled, which no failure moves), next attempt (next_attempt: that slot, or the
retry of a failed run, whichever comes first) and health.';
