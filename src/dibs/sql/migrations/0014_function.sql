-- Functions of the database as jobs: which of them a worker may run, what was sent, and who watches over a process.

-- A function is known by its name and owner, not by its number: numbers do not survive a dump, and a column of type
-- regprocedure keeps pg_upgrade from running.
create table dibs.allowed_function (
  name text not null constraint allowed_function_pkey primary key,
  schema_name name not null,
  function_name name not null,
  owner name not null,
  timeout interval not null default interval '30 seconds',
  allowed_at timestamptz not null default dibs.now(),
  allowed_by name not null default session_user,
  constraint allowed_function_timeout_range check (
    timeout between interval '10 milliseconds' and interval '1 day')
);

comment on table dibs.allowed_function is 'Functions that run_function may run, by name and owner.';

-- What a channel did for a job, step by step. A `sending` with no step after it is a message that may or may not have
-- gone out: its worker died between the provider and the record.
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

comment on table dibs.delivery is 'What a channel did for a job, step by step. Insert only.';
create index delivery_job_idx on dibs.delivery (job_id, seq);

create table dibs.process (
  name text not null constraint process_pkey primary key,
  job_id uuid not null,
  constraint process_name_shape check (length(name) between 1 and 500 and name !~ '[[:cntrl:]]')
) with (fillfactor = 80);

comment on table dibs.process is 'Processes that a supervisor watches over, and the job that is its next run.';
create index process_job_idx on dibs.process (job_id);
