-- A job that comes back takes its key again.

create or replace function dibs._retake_dedup_keys(ids uuid[], at timestamptz) returns void
language sql volatile
begin atomic
  -- A window runs from the original enqueue. A job whose key was held only by a window therefore neither retakes the
  -- key nor is blocked by another holder.
  select dibs._take_dedup_key(d.fingerprint, d.id, d.dedup_scope, null, false, at)
  from (
    select distinct on (d.fingerprint) d.fingerprint, d.id, j.dedup_scope from dibs.dead as d join dibs.job as j on j.id = d.id
    where d.id = any (ids) and d.fingerprint is not null and j.dedup_scope is distinct from 'window'
    order by d.fingerprint, d.id offset 0
  ) as d;
end;

comment on function dibs._retake_dedup_keys is
'Take the dedup keys of dead jobs again, where no other job has them now; of several with one key, for the oldest.';
