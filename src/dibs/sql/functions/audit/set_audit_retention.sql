-- set_audit_retention: only the owner decides how long the audit is kept.

create or replace function dibs._forget_audit(at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_gone bigint;
begin
  -- Look at the 10,000 lowest ids only, old or not: there is no index by time, so a search for old rows would read the
  -- whole table.
  with gone as (
    delete from dibs.audit as a
    where a.id in (
      select o.id from (select f.id, f.at from dibs.audit as f order by f.id limit 10000) as o
      where o.at < _forget_audit.at - (select s.audit_retention from dibs.setting as s))
    returning 1)
  select count(*) into v_gone from gone;
  return v_gone;
end
$$;

comment on function dibs._forget_audit is
'Delete rows of the audit past their retention, among the 10,000 oldest. Return how many.';

create or replace function dibs.set_audit_retention(keep interval) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  update dibs.setting as s set audit_retention = set_audit_retention.keep;
  select dibs._audit('set_audit_retention', detail => jsonb_build_object('keep', set_audit_retention.keep));
end;

comment on function dibs.set_audit_retention is
'Set how long the audit is kept, from 30 days to 100 years; 400 days at first. `forget` deletes older rows. Only the
owner of the schema may call it.';
