-- The audit: every change that was made by hand. The triggers bind the owner of the table, too.

create sequence dibs.audit_id_seq;
create table dibs.audit (
  id bigint not null default nextval('dibs.audit_id_seq') constraint audit_pkey primary key,
  operation bigint not null,
  at timestamptz not null,
  role text not null,
  actor text,
  verb text not null,
  queue text,
  filter jsonb,
  jobs bigint,
  detail jsonb,
  job_id uuid,
  before jsonb
);
alter sequence dibs.audit_id_seq owned by dibs.audit.id;
comment on table dibs.audit is
'Every change by an operator: a row for each step. Rows are only inserted, and deleted past setting.audit_retention.';
comment on column dibs.audit.operation is
'The id of the row of the first step: a change of many jobs is made in several.';
comment on column dibs.audit.role is 'The login.';
comment on column dibs.audit.actor is
'The person for whom the session acted, from its setting dibs.actor; null if it named none.';
comment on column dibs.audit.jobs is 'The number of jobs this step changed; null for a change that is not about jobs.';
comment on column dibs.audit.job_id is 'The job that was edited; `before` holds its old values.';
create index audit_operation_idx on dibs.audit (operation);
create index audit_policy_idx on dibs.audit (queue, id) where verb = 'set_queue';
create index audit_job_idx on dibs.audit (job_id) where job_id is not null;

create function dibs._protect_audit() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    if old.at < dibs.now() - (select s.audit_retention from dibs.setting as s) then
      return old;
    end if;
  end if;
  raise exception using errcode = '42501', message = 'the audit is never changed: its rows are only inserted',
    hint = 'they leave when setting.audit_retention has passed';
end
$$;

comment on function dibs._protect_audit is
'Trigger: raise 42501 for every change of the audit except the deletion of a row past its retention.';

create trigger audit_kept before update or truncate on dibs.audit
for each statement execute function dibs._protect_audit();
create trigger audit_row_kept before delete on dibs.audit
for each row execute function dibs._protect_audit();
