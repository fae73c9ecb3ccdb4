-- confined_to: the queues that the session's user may use. _confined.sql says why the session's user counts.

create or replace function dibs.confined_to() returns integer[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  with recursive my_role (oid) as (
    select r.oid from pg_catalog.pg_roles as r
    where r.rolname = session_user and not r.rolsuper
      and r.oid <> (select n.nspowner from pg_catalog.pg_namespace as n where n.nspname = 'dibs')
    union
    select m.roleid from my_role as r join pg_catalog.pg_auth_members as m on m.member = r.oid
  )
  -- array_agg of no row is null: the caller is not confined.
  select array_agg(q.id) from dibs.confinement as c join my_role as r on r.oid = c.role
  join dibs.queue as q on q.id = c.queue_id or q.shard_of = c.queue_id;
end;

comment on function dibs.confined_to is
'The queues that the caller is confined to, directly or through a role it is a member of; null if it is not confined.';

create or replace function dibs._is_hidden_job(id uuid) returns boolean
language sql stable
begin atomic
  select coalesce((
    select not (j.queue_id = any (c.queues))
    from (select dibs.confined_to() as queues) as c, dibs.job as j
    where j.id = _is_hidden_job.id and c.queues is not null), false);
end;

comment on function dibs._is_hidden_job is 'True if a job is in a queue that the caller, being confined, may not use.';

create or replace function dibs._visible_job(id uuid) returns uuid
language sql stable
return case when not (dibs._is_confined() and dibs._is_hidden_job(id)) then id end;

comment on function dibs._visible_job is 'The given id of a job; null if the job is hidden from the caller.';
