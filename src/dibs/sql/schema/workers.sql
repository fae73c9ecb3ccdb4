-- Workers that are alive, and the tasks they run.

-- A row for each start of a process: if a name is used again, the leases of the old process stay visible as another's.
create table dibs.worker (
  id bigint generated always as identity constraint worker_pkey primary key,
  secret uuid not null default gen_random_uuid() constraint worker_secret_key unique,
  name text not null,
  started_at timestamptz not null,
  seen_at timestamptz not null,
  facts jsonb not null,
  kinds text[],
  cpu real,
  memory bigint,
  stop_asked_at timestamptz,
  constraint worker_name_shape check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
  constraint worker_facts_object check (jsonb_typeof(facts) = 'object'),
  constraint worker_cpu_range check (cpu between 0 and 10000),
  constraint worker_memory_range check (memory >= 0)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table dibs.worker is 'Workers: one row for each start of a process.';
comment on column dibs.worker.secret is
'The id of a worker in every verb. Only the worker knows it; other people see its number.';
comment on column dibs.worker.kinds is 'The kinds it runs; null if it did not report them.';
comment on column dibs.worker.cpu is
'The number of processors it kept busy since its last heartbeat; null if it did not report it.';
comment on column dibs.worker.memory is 'The number of bytes of memory it uses; null if it did not report it.';
comment on column dibs.worker.stop_asked_at is 'When it was asked to stop; null if it was not.';

-- Producers that do not have the code of a task enqueue by its name.
create table dibs.task (
  kind text not null,
  queue text not null,
  arguments jsonb not null,
  options jsonb not null,
  first_at timestamptz not null,
  set_at timestamptz not null,
  constraint task_pkey primary key (kind, queue),
  constraint task_arguments_array check (jsonb_typeof(arguments) = 'array'),
  constraint task_options_object check (jsonb_typeof(options) = 'object')
);
comment on table dibs.task is 'Tasks that workers have registered: kind, queue, arguments and options.';
