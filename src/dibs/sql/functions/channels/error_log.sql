-- The log of operational errors.

create or replace function dibs.append_error(message text, job_id uuid default null, source text default 'sql')
returns bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select dibs._check_name('a source', coalesce(append_error.source, 'sql'));
  insert into dibs.error (at, job_id, source, message)
  values (dibs.now(), dibs._visible_job(append_error.job_id), coalesce(append_error.source, 'sql'),
    dibs._clip_error(coalesce(append_error.message, 'an error that said nothing')))
  returning id;
end;

comment on function dibs.append_error is
'Write an operational error into the log, with the job it is about and the source that saw it. A job that the caller may
not see is left out. Returns the id of the entry. If the transaction is rolled back, there is no entry.';

create or replace function dibs.set_error_retention(keep interval) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  update dibs.setting as s set error_retention = set_error_retention.keep;
  select dibs._audit('set_error_retention', detail => jsonb_build_object('keep', set_error_retention.keep));
end;

comment on function dibs.set_error_retention is
'Set how long the error log and the counts of failures are kept, from an hour to 10 years; a month by default. `forget`
deletes older ones.';
