-- The allow-list of functions of the database that a worker may run.

-- Identify a function by name and owner. An oid does not survive a dump, and pg_upgrade refuses columns of type
-- regprocedure.
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
