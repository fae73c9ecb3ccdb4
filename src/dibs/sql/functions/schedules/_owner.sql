-- Whose a schedule is.

create or replace function dibs._may_change_schedule(s dibs.schedule) returns boolean
language plpgsql stable
as $$
begin
  return dibs._may_see_queue(s.job ->> 'queue') and (
    dibs._may_call('set_schedule')
    or coalesce(dibs._roles_inherited_by(session_user) && dibs._roles_inherited_by(s.declared_by), true));
end
$$;

comment on function dibs._may_change_schedule is
'Whether the caller may change a schedule: an administrator, the login that declared it, and logins that have a role in common with
it, beside those of dibs; anyone if that login is gone. A confined one only within its queues.';

create or replace function dibs._check_schedule_owner(old dibs.schedule, name text, job jsonb) returns void
language plpgsql stable
as $$
begin
  if job is not null and dibs._is_confined() then
    perform dibs._check_queue_access(array[coalesce(job ->> 'queue', '')]);
  end if;
  if old.id is not null and not dibs._may_change_schedule(old) then
    -- Names are shared by all queues, so this much cannot be hidden.
    raise exception using errcode = '42501', message = format('schedule %L belongs to somebody else', name),
      hint = 'give yours another name, or let an administrator change it';
  end if;
end
$$;

comment on function dibs._check_schedule_owner is 'Refuse a schedule for a queue that the caller may not use, or in place of another''s.';
