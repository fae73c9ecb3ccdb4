-- What holds a role to its queues. The session's own user counts: inside a definer function the current one is its owner.

create or replace function dibs.confined_to() returns integer[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  with recursive mine (oid) as (
    select r.oid from pg_catalog.pg_roles as r
    where r.rolname = session_user and not r.rolsuper
      and r.oid <> (select n.nspowner from pg_catalog.pg_namespace as n where n.nspname = 'dibs')
    union
    select m.roleid from mine join pg_catalog.pg_auth_members as m on m.member = mine.oid
  )
  select array_agg(q.id) from dibs.confinement as c join mine on mine.oid = c.role
  join dibs.queue as q on q.id = c.queue_id or q.shard_of = c.queue_id;
end;

comment on function dibs.confined_to is
'The queues the caller is confined to, through its login and every role that is a member of; null when it is not.';

create or replace function dibs.check_queues(names text[]) returns void
language plpgsql stable
as $$
declare
  v_mine integer[] := dibs.confined_to();
  v_other text := (
    select n from unnest(names) as n
    where not exists (select from dibs.queue as q where q.name = n and q.id = any (v_mine)) limit 1);
begin
  if v_mine is not null and v_other is not null then
    raise exception using errcode = '42501',
      message = format('role %I is confined to other queues and may not use %L', session_user, v_other),
      hint = format('it may use %s', (
        select string_agg(q.name, ', ' order by q.name) from dibs.queue as q where q.id = any (v_mine)));
  end if;
end
$$;

comment on function dibs.check_queues is 'Refuse queues that the caller, being confined, may not use.';

create or replace function dibs.is_hidden(id uuid) returns boolean
language sql stable
begin atomic
  select coalesce((
    select not (j.queue_id = any (m.mine))
    from (select dibs.confined_to() as mine) as m, dibs.job as j where j.id = is_hidden.id and m.mine is not null), false);
end;

comment on function dibs.is_hidden is 'Whether a job is in a queue that the caller, being confined, may not use.';
