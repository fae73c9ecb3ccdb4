-- What operators choose jobs by, and what it takes to undo what they did.

create type dibs.job_filter as (
  ids uuid[],
  queue text,
  kind text,
  states text[],
  "group" text,
  dedup_key text,
  reason text,
  failure text,
  payload jsonb,
  headers jsonb,
  enqueued_after timestamptz,
  enqueued_before timestamptz,
  ended_after timestamptz,
  ended_before timestamptz
);
comment on type dibs.job_filter is
'What jobs are chosen by; all that is given has to hold. `reason` is a LIKE pattern for the reason of a dead job or the last error of
another, payload and headers are contained in the job''s, and dedup_key is one of the queue.';

create type dibs.job_change as (
  payload jsonb,
  priority integer,
  due_at timestamptz,
  delay interval
);
comment on type dibs.job_change is 'What `edit` changes of a job.';

create type dibs.waiting_ticket as (
  id uuid,
  due_at timestamptz,
  expire_at timestamptz,
  queue_id integer,
  run integer,
  charged smallint,
  losses smallint,
  priority smallint,
  own_lease interval,
  history text,
  fingerprint bytea,
  lane uuid,
  cost integer,
  turn smallint
);
comment on type dibs.waiting_ticket is 'A ticket that was taken out of ready or blocked.';

-- Kept for an hour. For a job that was cancelled: when, and until when it may wait. For one that was brought back: what it had
-- died of.
create table dibs.undo_job (
  operation bigint not null,
  id uuid not null,
  at timestamptz not null,
  run integer not null,
  charged smallint not null,
  losses smallint not null,
  due_at timestamptz not null,
  expire_at timestamptz,
  ended_at timestamptz not null,
  state text not null,
  reason text,
  constraint undo_job_pkey primary key (operation, id)
);
create index undo_job_at_idx on dibs.undo_job (at);
comment on table dibs.undo_job is 'What jobs were before an operation that can be undone.';

-- Failures by what they have in common. roll_up counts them, with the runs.

create type dibs.failure_key as (
  fingerprint text,
  error text,
  message text,
  frame text
);
comment on type dibs.failure_key is
'What failures are grouped by: the class of the exception, its message without numbers and ids, and the innermost frame of your code.';

create table dibs.failure_group (
  fingerprint text not null constraint failure_group_pkey primary key,
  error text not null,
  message text not null,
  frame text
);
comment on table dibs.failure_group is 'Failures that are alike.';

create table dibs.failure_count (
  fingerprint text not null,
  queue_id integer not null,
  kind text not null,
  hour timestamptz not null,
  failures bigint not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  constraint failure_count_pkey primary key (fingerprint, queue_id, kind, hour)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table dibs.failure_count is 'How often failures of a group happened, by queue, kind and hour.';
create index failure_count_hour_idx on dibs.failure_count (hour);
