-- Filters and changes that operators give, and snapshots for undo.

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
'The conditions by which verbs choose jobs; a job must meet every condition that is given. `reason` is a LIKE pattern
for the reason of a dead job, or for the last error of another; `failure` is the fingerprint of a group of errors;
payload and headers must be contained in the job''s, and only callers of `show` may give them; a dedup_key needs its
queue.';

create type dibs.job_change as (
  payload jsonb,
  priority integer,
  due_at timestamptz,
  delay interval
);
comment on type dibs.job_change is 'The fields of a job that `edit` can change.';

-- For a cancelled job: when it was cancelled and its old expire_at. For a retried job: when and why it had died.
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
create index undo_job_id_idx on dibs.undo_job (id);
comment on table dibs.undo_job is
'Jobs as they were before a cancel_where or a retry, kept for an hour so that `undo` can restore them.';
