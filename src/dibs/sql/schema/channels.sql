-- Deliveries of channels, supervised processes, and the log of operational errors.

-- A `sending` without a later step is a message that may or may not have gone out: the worker died before the call of
-- the provider, during it, or after it.
create table dibs.delivery (
  seq bigint generated always as identity constraint delivery_pkey primary key,
  job_id uuid not null,
  token uuid not null,
  at timestamptz not null,
  run integer not null,
  step text not null,
  provider text,
  detail jsonb,
  constraint delivery_step_known check (step in ('sending', 'accepted', 'failed', 'refused', 'recorded')),
  constraint delivery_provider_shape check (length(provider) between 1 and 200 and provider !~ '[[:cntrl:]]')
);
comment on table dibs.delivery is 'The steps of the delivery of a job through a channel. Rows are never updated.';
create index delivery_job_idx on dibs.delivery (job_id, seq);

create table dibs.supervised_process (
  queue_id integer not null,
  name text not null,
  job_id uuid not null,
  constraint supervised_process_pkey primary key (queue_id, name),
  constraint supervised_process_name_shape check (length(name) between 1 and 500 and name !~ '[[:cntrl:]]')
) with (fillfactor = 80);
comment on table dibs.supervised_process is
'Supervised (business) processes by queue and name, and the newest job that looks at each.
It waits, runs or has ended.';
create index supervised_process_job_idx on dibs.supervised_process (job_id);

create table dibs.error (
  id bigint generated always as identity constraint error_pkey primary key,
  at timestamptz not null,
  job_id uuid,
  source text not null,
  message text not null,
  constraint error_source_shape check (length(source) between 1 and 200 and source !~ '[[:cntrl:]]')
);
comment on table dibs.error is 'The log of operational errors. Rows are never updated; retention deletes the oldest.';
create index error_job_idx on dibs.error (job_id) where job_id is not null;
