-- Dedup keys that are held. `scope` says how long: null until the job has ended, `waiting` until it starts, `window`
-- until the time `until`. Only a hash is stored, because PostgreSQL prints the row in a unique violation.

create table dibs.fingerprint (
  hash bytea not null constraint fingerprint_pkey primary key,
  id uuid not null,
  scope text,
  until timestamptz,
  constraint fingerprint_scope_known check (scope in ('waiting', 'window'))
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
comment on table dibs.fingerprint is
'Dedup keys, hashed, and the jobs that hold them. A row may be left whose key is held no more.';
create index fingerprint_until_idx on dibs.fingerprint (until) where until is not null;
