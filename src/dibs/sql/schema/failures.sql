-- Groups of similar failures and their counts. roll_up counts failures with the runs.

create type dibs.failure_key as (
  fingerprint text,
  error text,
  message text,
  frame text
);
comment on type dibs.failure_key is
'The properties that similar failures share: the class of the exception (`error`), the first line of its message without
numbers and ids, and the innermost frame, of the user''s code if there is one; and the hash of the three.';

create table dibs.failure_group (
  fingerprint text not null constraint failure_group_pkey primary key,
  error text not null,
  message text not null,
  frame text
);
comment on table dibs.failure_group is 'Groups of similar failures.';

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
comment on table dibs.failure_count is 'How often the failures of a group happened, by queue, kind and hour.';
create index failure_count_hour_idx on dibs.failure_count (hour);
