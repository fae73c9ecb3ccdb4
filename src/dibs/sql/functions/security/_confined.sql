-- Check what a confined role may use. The session's user counts: in a SECURITY DEFINER function the current user is the
-- owner of the schema.

create or replace function dibs._check_queue_access(names text[]) returns void
language plpgsql stable
as $$
declare
  v_allowed integer[] := dibs.confined_to();
  v_forbidden text := (
    select n from unnest(names) as n
    where not exists (select from dibs.queue as q where q.name = n and q.id = any (v_allowed)) limit 1);
begin
  if v_allowed is not null and v_forbidden is not null then
    raise exception using errcode = '42501',
      message = format('role %I is confined to other queues and may not use %L', session_user, v_forbidden),
      hint = format('it may use %s', (
        select string_agg(q.name, ', ' order by q.name) from dibs.queue as q where q.id = any (v_allowed)));
  end if;
end
$$;

comment on function dibs._check_queue_access is
'Raise 42501 if the caller is confined and may not use one of these queues.';

create or replace function dibs._refuse_confined(request text) returns void
language plpgsql stable
as $$
begin
  if dibs.confined_to() is not null then
    raise exception using errcode = '42501',
      message = format('role %I is confined to some queues, and %s', session_user, request),
      hint = 'ask with a role that is not confined';
  end if;
end
$$;

comment on function dibs._refuse_confined is
'Raise 42501 if the caller is confined. `request` ends the message: it says what the caller asked for.';

create or replace function dibs._may_see_queue(queue text) returns boolean
language plpgsql stable
as $$
declare
  v_allowed integer[];
begin
  if not dibs._is_confined() then
    return true;
  end if;
  v_allowed := dibs.confined_to();
  return v_allowed is null or exists (select from dibs.queue as q where q.name = queue and q.id = any (v_allowed));
end
$$;

comment on function dibs._may_see_queue is
'True if the caller may know of a queue: it is not confined, or this queue is one of those it may use.';

create or replace function dibs._dibs_roles() returns text[]
language sql immutable parallel safe
return '{dibs_producer,dibs_worker,dibs_observer,dibs_admin,
  dibs_read,dibs_retry,dibs_cancel,dibs_delete,dibs_edit,dibs_pause,dibs_schedules}'::text[];

comment on function dibs._dibs_roles is 'The roles of dibs: four for logins, and one for each action of a person.';

create or replace function dibs._roles_inherited_by(login name) returns oid[]
language sql stable
begin atomic
  with recursive inherited (oid) as (
    select r.oid from pg_catalog.pg_roles as r where r.rolname = login
    union
    select m.roleid from inherited as i join pg_catalog.pg_auth_members as m on m.member = i.oid
  )
  select array_agg(i.oid) from inherited as i join pg_catalog.pg_roles as r on r.oid = i.oid
  where r.rolname <> all (dibs._dibs_roles()) and r.rolname !~ '^pg_';
end;

comment on function dibs._roles_inherited_by is
'Return a role and all roles it is a member of, directly or not, without PostgreSQL''s and dibs'' own roles; null if
there are none.';

create or replace function dibs._refuse_hidden_ids(ids uuid[]) returns void
language plpgsql stable
as $$
declare
  v_id uuid;
begin
  if dibs._is_confined() then
    select k into v_id from unnest(ids) as k where dibs._is_hidden_job(k) limit 1;
    if v_id is not null then
      raise exception using errcode = '42501', message = format('a job cannot have the id %s', v_id),
        hint = 'make ids with dibs.make_id(), or give none';
    end if;
  end if;
end
$$;

comment on function dibs._refuse_hidden_ids is
'Raise 42501 if a job with one of these ids is in a queue that the caller, being confined, may not use. Ids are unique
across queues, so it shows that an id is taken; the queue and the state of that job stay hidden.';

create or replace function dibs._may_call(verb text) returns boolean
language sql stable
begin atomic
  select exists (
    select from pg_catalog.pg_proc as p
    where p.pronamespace = 'dibs'::regnamespace and p.proname = verb
      and has_function_privilege(session_user, p.oid, 'execute'));
end;

comment on function dibs._may_call is
'True if the caller may call a verb itself. Some verbs do more for callers who may.';
