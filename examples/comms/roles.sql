-- comms_owner owns the tables and functions and may enqueue; comms_user may kick processes off and look at them.
-- Neither can log in, and no worker is one of them.

do $roles$
declare
  v_role text;
begin
  foreach v_role in array array['comms_owner', 'comms_user'] loop
    if not exists (select from pg_roles where rolname = v_role) then
      execute format('create role %I nologin', v_role);
    end if;
  end loop;
  execute format('grant comms_owner to %I', current_user);
end
$roles$;

grant dibs_producer to comms_owner;
create schema if not exists comms authorization comms_owner;
