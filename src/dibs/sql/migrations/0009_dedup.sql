-- How long a dedup key is held: while its job waits (scope waiting), until its job has ended (null), or for a time of its
-- own (scope window); until is the end of that time. A job remembers the scope for its redrive.
-- There was no release before this one, so the tables are empty and nothing is blocked by it.
-- squawk-ignore-file constraint-missing-not-valid, require-concurrent-index-creation

alter table dibs.fingerprint
  add column scope text,
  add column until timestamptz,
  add constraint fingerprint_scope_known check (scope in ('waiting', 'window'));

create index fingerprint_until_idx on dibs.fingerprint (until) where until is not null;

alter table dibs.job
  add column dedup_scope text,
  add constraint job_dedup_scope_known check (dedup_scope in ('waiting', 'window'));
