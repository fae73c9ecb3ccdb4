-- Recurring work: the job to enqueue, the rule that says when, and the health of its runs. Small tables, updated in
-- place.

create table dibs.schedule (
  id integer generated always as identity constraint schedule_pkey primary key,
  name text not null constraint schedule_name_key unique,
  revision bigint not null default 1,
  created_at timestamptz not null,
  app text,
  declared jsonb,
  declared_by name not null default session_user,
  retired_at timestamptz,
  job jsonb not null,
  rule text not null,
  cron text,
  every interval,
  once timestamptz,
  zone text not null default 'UTC',
  start_at timestamptz,
  end_at timestamptz,
  jitter interval not null default interval '0',
  overlap text not null default 'skip',
  catch_up integer not null default 1,
  grace interval not null default interval '1 minute',
  on_failure text not null default 'retry',
  pause_after integer,
  anchor timestamptz not null,
  handled_until timestamptz not null,
  next_scheduled timestamptz,
  tick_at timestamptz,
  upcoming timestamptz[] not null default '{}',
  held timestamptz[] not null default '{}',
  paused_at timestamptz,
  pause_reason text,
  ended_at timestamptz,
  last_slot timestamptz,
  last_job uuid,
  last_attempt timestamptz,
  last_success timestamptz,
  failed_attempts integer not null default 0,
  failed_runs integer not null default 0,
  fired bigint not null default 0,
  succeeded bigint not null default 0,
  skipped bigint not null default 0,
  missed bigint not null default 0,
  last_duration interval,
  total_duration interval not null default interval '0',
  status_message text,
  constraint schedule_name_shape check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
  constraint schedule_rule_known check (rule in ('cron', 'interval', 'fixed_rate', 'fixed_delay', 'once')),
  constraint schedule_rule_whole check (
    case rule when 'cron' then cron is not null when 'once' then once is not null else every is not null end),
  constraint schedule_every_range check (every between interval '1 second' and interval '3650 days'),
  constraint schedule_window_range check (start_at <= end_at),
  constraint schedule_jitter_range check (jitter between interval '0' and interval '7 days'),
  constraint schedule_overlap_known check (overlap in ('skip', 'queue', 'allow', 'cancel')),
  constraint schedule_catch_up_range check (catch_up between 0 and 1000),
  constraint schedule_grace_range check (grace between interval '1 second' and interval '1 day'),
  constraint schedule_on_failure_known check (on_failure in ('retry', 'next')),
  constraint schedule_pause_after_range check (pause_after between 1 and 10000)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table dibs.schedule is 'Schedules: the job to enqueue, the rule, the progress, and the health of the runs.';
comment on column dibs.schedule.revision is 'Raised by each change of the row. `fire` with an older one does nothing.';
comment on column dibs.schedule.app is 'The app that declares the schedule; null if it was set by hand.';
comment on column dibs.schedule.declared is
'The declaration as the app last sent it. Changes by hand stay until it differs.';
comment on column dibs.schedule.declared_by is 'The login that owns the schedule.';
comment on column dibs.schedule.retired_at is
'When the app stopped to declare the schedule. Since then only `trigger` makes jobs of it.';
comment on column dibs.schedule.every is 'The duration of an interval, fixed_rate or fixed_delay rule.';
comment on column dibs.schedule.catch_up is 'This many of the newest due slots get a job, even if they are late.';
comment on column dibs.schedule.grace is 'A slot is late if it is handled longer than this after its time.';
comment on column dibs.schedule.pause_after is 'Pause after this many failed runs in a row; null for never.';
comment on column dibs.schedule.anchor is
'A fixed rate has its slots at `anchor` plus multiples of `every`, except those up to `handled_until`.';
comment on column dibs.schedule.handled_until is 'Slots up to this time are decided; a held slot may still be dropped.';
comment on column dibs.schedule.next_scheduled is
'The next slot. Null once the schedule has ended, while a fixed delay waits for its run to end, and until a client has
read a new cron expression.';
comment on column dibs.schedule.tick_at is
'When run_schedules looks at the schedule next: at the next slot, at once to read a new cron expression, or 10
seconds after a try that failed.';
comment on column dibs.schedule.upcoming is 'The next slots of a cron schedule, which a client computed.';
comment on column dibs.schedule.held is 'Due slots, in order, that wait for the open run to end.';
comment on column dibs.schedule.last_slot is
'The latest slot that got a job; last_job is the latest job, also of `trigger`.';
comment on column dibs.schedule.failed_attempts is 'Failed attempts since the last run that succeeded.';
comment on column dibs.schedule.failed_runs is 'Runs that failed, in a row, since the last run that succeeded.';
comment on column dibs.schedule.fired is 'How many jobs were made, also by `trigger`.';
comment on column dibs.schedule.skipped is
'How many slots made no job: by the overlap policy, by a duplicate dedup key, or because they were held when the
schedule was paused, changed or retired.';
comment on column dibs.schedule.missed is 'How many slots were late and not among the newest `catch_up`.';
create index schedule_tick_idx on dibs.schedule (tick_at) where tick_at is not null;

-- The unique index on the slot makes sure that it gets one job, however many schedulers there are.
create table dibs.schedule_run (
  id uuid not null constraint schedule_run_pkey primary key,
  schedule_id integer not null,
  slot timestamptz not null,
  fired_at timestamptz not null,
  triggered boolean not null,
  failures integer not null default 0,
  outcome text,
  ended_at timestamptz,
  duration interval
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
comment on table dibs.schedule_run is
'Runs: the jobs made for schedules, one for each slot that fired and one for each trigger.';
comment on column dibs.schedule_run.id is 'The id of the job.';
comment on column dibs.schedule_run.failures is 'How many failed attempts of the job are already counted.';
comment on column dibs.schedule_run.ended_at is 'When the job ended. Null while it has not, as far as a tick has seen.';
comment on column dibs.schedule_run.duration is 'How long its last attempt ran.';
create unique index schedule_run_slot_key on dibs.schedule_run (schedule_id, slot) where not triggered;
create index schedule_run_open_idx on dibs.schedule_run (schedule_id, slot) where ended_at is null;
create index schedule_run_ended_idx on dibs.schedule_run (schedule_id, ended_at);
