-- Who changed what. Rows are inserted, and leave when their time is over; the triggers hold for the owner, too.

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
comment on table dibs.audit is 'Who changed what, and when: a row for each step of a change. Insert only; rows past setting.audit_retention leave.';
comment on column dibs.audit.operation is 'The row of its first step: a change of many jobs is made in several.';
comment on column dibs.audit.role is 'The login.';
comment on column dibs.audit.actor is 'Who said to act, by the setting dibs.actor; null if nobody did.';
comment on column dibs.audit.jobs is 'How many jobs this step changed; null if it was not about jobs.';
comment on column dibs.audit.job_id is 'The job that was edited; `before` is what it had.';
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

comment on function dibs._protect_audit is 'Refuse to change the audit, but for rows past their retention, which may be deleted.';

create trigger audit_kept before update or truncate on dibs.audit
for each statement execute function dibs._protect_audit();
create trigger audit_row_kept before delete on dibs.audit
for each row execute function dibs._protect_audit();
