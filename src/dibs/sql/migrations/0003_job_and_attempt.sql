-- What was asked and what happened: written once, partitioned by the day in the id, dropped by the day.
-- The columns of fixed width come first, so that no row is padded.

create table dibs.job (
  id uuid not null,
  due_at timestamptz not null,
  queue_id integer not null,
  priority smallint not null,
  kind text not null,
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  fingerprint bytea,
  deadline timestamptz,
  ttl interval,
  lease interval,
  lease_growth double precision,
  lease_cap interval,
  max_attempts integer,
  backoff dibs.backoff,
  history text,
  group_name text,
  cost integer,
  resources jsonb,
  constraint job_pkey primary key (id),
  constraint job_kind_shape check (length(kind) between 1 and 200 and kind not like E'%\n%'),
  constraint job_priority_range check (priority between 0 and 10),
  constraint job_one_payload check (payload is null or body is null),
  constraint job_content_type_shape check (
    length(content_type) between 1 and 200 and content_type !~ '[[:cntrl:]]'),
  constraint job_headers_object check (jsonb_typeof(headers) = 'object'),
  constraint job_ttl_range check (ttl > interval '0' and ttl <= interval '10 years'),
  constraint job_lease_range check (
    lease between interval '100 milliseconds' and interval '7 days'),
  constraint job_lease_growth_range check (lease_growth between 1 and 100),
  constraint job_lease_cap_range check (
    lease_cap between interval '100 milliseconds' and interval '7 days'),
  constraint job_max_attempts_range check (max_attempts between 1 and 10000),
  constraint job_history_known check (history in ('all', 'failures', 'none')),
  constraint job_group_shape check (length(group_name) between 1 and 200 and group_name !~ '[[:cntrl:]]'),
  constraint job_cost_range check (cost between 1 and 1000000),
  constraint job_resources_object check (jsonb_typeof(resources) = 'object' and resources <> '{}')
) partition by range (id);

comment on table dibs.job is 'What was asked: payload and options. Never updated.';
create table dibs.job_default partition of dibs.job default;

create type dibs.outcome as enum (
  'succeeded', 'failed', 'lost', 'snoozed', 'released', 'cancelled');

create table dibs.attempt (
  id uuid not null,
  token uuid not null,
  claimed_at timestamptz not null,
  ended_at timestamptz not null,
  queue_id integer not null,
  run integer not null,
  outcome dibs.outcome not null,
  worker bigint,
  result jsonb,
  error text,
  progress jsonb,
  constraint attempt_pkey primary key (id, run)
) partition by range (id);

comment on table dibs.attempt is 'What happened: one row for each ended run. Insert only.';
create table dibs.attempt_default partition of dibs.attempt default;
