-- Recurring work: what to enqueue, when, and how it has been going. Small tables, updated in place.

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
comment on table dibs.schedule is 'Recurring work and its health.';
create index schedule_tick_idx on dibs.schedule (tick_at) where tick_at is not null;

-- The key on the slot is what makes one job of it, however many schedulers there are.
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
comment on table dibs.schedule_run is 'The jobs made for schedules: one for each slot, and one for each trigger.';
create unique index schedule_run_slot_key on dibs.schedule_run (schedule_id, slot) where not triggered;
create index schedule_run_open_idx on dibs.schedule_run (schedule_id, slot) where ended_at is null;
create index schedule_run_ended_idx on dibs.schedule_run (schedule_id, ended_at);
