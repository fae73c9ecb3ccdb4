-- What the doctor finds, and what it compares the code with.

create type dibs.finding as (
  name text,
  level text,
  message text,
  reason text,
  fix text,
  subject text
);
comment on type dibs.finding is
'Something the doctor found: the name of the check, `error`, `warning` or `note`, what is wrong, why it matters, what to do, and the
name of what it is about: the queue, schedule, worker, table or setting.';

create type dibs.vital as (
  name text,
  labels text[],
  value double precision
);
comment on type dibs.vital is 'A number for monitoring: the name of its metric without `dibs_`, the values of its labels, and the value.';

create table dibs.installed_code (
  name text not null constraint installed_code_pkey primary key,
  digest text not null
);
comment on table dibs.installed_code is 'What each function, view, table, index and trigger was when it was installed; functions and views with their owner and grants.';
