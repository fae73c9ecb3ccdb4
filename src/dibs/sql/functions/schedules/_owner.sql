-- The owner of a schedule: the login that declared it.

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
'True if the caller may change a schedule: an administrator, the login that declared it, or a login that shares a role
with that one (roles of dibs do not count). If that login was dropped, anyone may. A confined caller must also have the
queue.';

create or replace function dibs._check_schedule_owner(s dibs.schedule) returns void
language plpgsql stable
as $$
begin
  if not dibs._may_change_schedule(s) then
    -- Names are unique across all queues, so a confined caller has to learn that this one is taken.
    raise exception using errcode = '42501', message = format('schedule %L belongs to somebody else', s.name),
      hint = 'give yours another name, or let an administrator change it';
  end if;
end
$$;

comment on function dibs._check_schedule_owner is 'Refuse to change a schedule that belongs to another login.';
