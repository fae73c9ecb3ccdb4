-- Operational errors, as a log: what went wrong around jobs, whether or not a job failed of it.

create table dibs.error (
  id bigint generated always as identity constraint error_pkey primary key,
  at timestamptz not null,
  job_id uuid,
  source text not null,
  message text not null,
  constraint error_source_shape check (length(source) between 1 and 200 and source !~ '[[:cntrl:]]')
);

comment on table dibs.error is 'The log of operational errors. Insert only; retention deletes the oldest.';
create index error_job_idx on dibs.error (job_id) where job_id is not null;

alter table dibs.setting
  add column error_retention interval not null default interval '1 month'
    constraint setting_error_retention_range check (error_retention between interval '1 hour' and interval '10 years');
