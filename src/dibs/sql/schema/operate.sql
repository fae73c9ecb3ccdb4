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
