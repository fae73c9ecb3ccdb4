-- Findings of the doctor, numbers of vitals, and the digests of the installed code.

create type dibs.finding as (
  name text,
  level text,
  message text,
  reason text,
  fix text,
  subject text
);
comment on type dibs.finding is
'A problem that the doctor found: the name of the check, the level (`error`, `warning` or `note`), a message, the reason
why it matters, a fix, and its subject: the name of the queue, schedule, worker, table or setting it is about.';

create type dibs.vital as (
  name text,
  labels text[],
  value double precision
);
comment on type dibs.vital is
'A number for monitoring: the name of its metric without `dibs_`, the values of its labels, and the value.';

create table dibs.installed_code (
  name text not null constraint installed_code_pkey primary key,
  digest text not null
);
comment on table dibs.installed_code is
'A digest of the definition of each function, view, table, index and trigger as it was installed; of functions and views
with owner and grants.';
