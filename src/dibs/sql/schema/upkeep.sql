-- Chores: work that has to be done because time passes. The first process that finds one due does it.

-- Each step leaves a dead version of its chore's row, and while an old transaction is open, vacuum cannot remove them.
-- done_at is part of the key so that the newest version comes first in the index.
create table dibs.chore (
  name text not null,
  every interval not null,
  done_at timestamptz not null default '-infinity',
  due_at timestamptz not null default '-infinity',
  took interval not null default interval '0',
  place uuid,
  failures integer not null default 0,
  error text,
  constraint chore_pkey primary key (name, done_at)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table dibs.chore is
'Each chore of the upkeep: how often it is done, and how the last round went. The process that does a chore locks its
row.';
comment on column dibs.chore.done_at is
'When a step was last done or tried, by the real clock; due_at is when the next is due.';
comment on column dibs.chore.took is
'The time that the last round took: all its steps that followed each other at once.';
comment on column dibs.chore.place is 'Where the next step goes on; null if it begins a new round.';
comment on column dibs.chore.failures is 'The number of failures since it last succeeded; `error` is the last of them.';
insert into dibs.chore (name, every) values
  ('rescue', interval '1 second'),
  ('schedule', interval '1 second'),
  ('expire', interval '10 seconds'),
  ('roll_up', interval '10 seconds'),
  ('repair_groups', interval '30 seconds'),
  ('repair_limits', interval '30 seconds'),
  ('forget', interval '1 minute'),
  ('prune', interval '10 minutes'),
  ('make_days', interval '1 hour');
