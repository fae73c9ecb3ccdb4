-- confined_to: the queues a role is held to. The session's own user counts, as in _confined.sql.

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

create or replace function dibs._is_hidden_job(id uuid) returns boolean
language sql stable
begin atomic
  select coalesce((
    select not (j.queue_id = any (m.mine))
    from (select dibs.confined_to() as mine) as m, dibs.job as j
    where j.id = _is_hidden_job.id and m.mine is not null), false);
end;

comment on function dibs._is_hidden_job is 'Whether a job is in a queue that the caller, being confined, may not use.';

create or replace function dibs._visible_job(id uuid) returns uuid
language sql stable
return case when not (dibs._is_confined() and dibs._is_hidden_job(id)) then id end;

comment on function dibs._visible_job is 'A job, unless it is hidden from the caller.';
