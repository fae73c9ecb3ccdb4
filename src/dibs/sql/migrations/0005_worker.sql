-- Who is alive: one row for each process start, so a re-used name never hides an orphan.

create table dibs.worker (
  id bigint generated always as identity constraint worker_pkey primary key,
  name text not null,
  started_at timestamptz not null,
  seen_at timestamptz not null,
  facts jsonb not null,
  constraint worker_name_shape check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
  constraint worker_facts_object check (jsonb_typeof(facts) = 'object')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

comment on table dibs.worker is 'Who is alive: one row for each process start.';
