-- What the workers' tasks are: so that a producer can enqueue by name, without the code.

create table dibs.task (
  kind text not null constraint task_pkey primary key,
  queue text not null,
  arguments jsonb not null,
  options jsonb not null,
  set_at timestamptz not null,
  constraint task_arguments_array check (jsonb_typeof(arguments) = 'array'),
  constraint task_options_object check (jsonb_typeof(options) = 'object')
);

comment on table dibs.task is 'Tasks that a worker runs: kind, queue, arguments and options.';
