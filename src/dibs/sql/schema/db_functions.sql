-- Functions of the database as jobs: which of them a worker may run.

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
