-- Roles with more rights than they need, and code that was changed since the install.

create or replace function dibs._find_strong_roles() returns setof dibs.finding
language sql stable
begin atomic
  select 'roles', 'warning', format('dibs belongs to %s, a superuser', current_user),
    'Every function of dibs runs with its owner''s rights.',
    'install with a role that is made for it: docs/run/security.md', current_user::text
  where exists (select from pg_catalog.pg_roles as r where r.rolname = current_user and r.rolsuper)
  union all
  select 'roles', 'warning', format('%s runs jobs and is an administrator of dibs as well', r.rolname),
    'A handler that is tricked could change limits, delete jobs or let functions run.',
    format('revoke dibs_admin from %I; grant it to people', r.rolname), r.rolname
  from pg_catalog.pg_roles as r
  where r.rolcanlogin and not r.rolsuper
    and exists (
      select from pg_catalog.pg_roles as d where d.rolname = 'dibs_admin' and pg_has_role(r.oid, d.oid, 'member'))
    and exists (
      select from pg_catalog.pg_roles as d
      where d.rolname in ('dibs_worker', 'dibs_producer') and pg_has_role(r.oid, d.oid, 'member'))
  union all
  select 'roles', 'warning', format('%s is a member of %s, which dibs belongs to', r.rolname, current_user),
    'It may change every table of dibs past all checks.', format('revoke %I from %I;', current_user, r.rolname),
    r.rolname
  from pg_catalog.pg_roles as r join pg_catalog.pg_roles as o on o.rolname = current_user and o.oid <> r.oid
  where r.rolcanlogin and not r.rolsuper and pg_has_role(r.oid, o.oid, 'member');
end;

comment on function dibs._find_strong_roles is
'Find roles that have more rights than they need. A membership counts directly or by a group, and with ADMIN alone: then
the role can give itself the rest.';

create or replace function dibs._code_digests() returns table (name text, digest text)
language sql stable
begin atomic
  select 'function ' || p.oid::regprocedure::text,
    md5(concat_ws('|', p.prosrc, pg_get_function_sqlbody(p.oid), p.proconfig, p.prosecdef, p.provolatile,
      pg_get_userbyid(p.proowner), (select string_agg(g::text, ',' order by g::text) from unnest(p.proacl) as g)))
  from pg_catalog.pg_proc as p where p.pronamespace = 'dibs'::regnamespace
  union all
  select 'view ' || c.oid::regclass::text,
    md5(concat_ws('|', pg_get_viewdef(c.oid), c.reloptions, pg_get_userbyid(c.relowner), (
      select string_agg(g::text, ',' order by g::text) from unnest(c.relacl) as g)))
  from pg_catalog.pg_class as c where c.relnamespace = 'dibs'::regnamespace and c.relkind = 'v';
end;

comment on function dibs._code_digests is
'Return all functions and views of dibs, each with a digest of its definition, owner and grants.';

create or replace function dibs._table_digests() returns table (name text, digest text)
language sql stable
begin atomic
  -- Leave out daily partitions, which come and go, and storage settings of tables, which administrators may change.
  with ours as (
    select c.oid from pg_catalog.pg_class as c
    where c.relnamespace = 'dibs'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition)
  select 'table ' || o.oid::regclass::text, md5(concat_ws('|', (
      select string_agg(
        concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull), ',' order by a.attnum)
      from pg_catalog.pg_attribute as a where a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped), (
      select string_agg(pg_get_constraintdef(k.oid), ',' order by k.conname)
      from pg_catalog.pg_constraint as k where k.conrelid = o.oid and k.contype <> 'n')))
  from ours as o
  union all
  select 'index ' || i.indexrelid::regclass::text, md5(concat_ws('|', pg_get_indexdef(i.indexrelid), i.indisvalid))
  from ours as o join pg_catalog.pg_index as i on i.indrelid = o.oid
  union all
  select format('trigger %s on %s', t.tgname, o.oid::regclass),
    md5(concat_ws('|', pg_get_triggerdef(t.oid), t.tgenabled))
  from ours as o join pg_catalog.pg_trigger as t on t.tgrelid = o.oid where not t.tgisinternal;
end;

comment on function dibs._table_digests is
'Return all tables, indexes and triggers of dibs, each with a digest of its definition.';

-- The definitions of views and the names of functions depend on the search path: pin that of `doctor`.
create or replace function dibs._record_installed_code() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
begin atomic
  delete from dibs.installed_code;
  insert into dibs.installed_code (name, digest)
  select c.name, c.digest from dibs._code_digests() as c
  union all
  select t.name, t.digest from dibs._table_digests() as t;
end;

comment on function dibs._record_installed_code is
'Write the digests of all code and tables into installed_code. The install calls it at its end.';

create or replace function dibs._find_drift() returns setof dibs.finding
language sql stable
begin atomic
  select 'drift', 'warning',
    format('%s %s since dibs was installed', coalesce(c.name, i.name),
      case when i.name is null then 'was added' when c.name is null then 'was dropped'
        when c.name ~ '^(function|view) ' then 'or its grants were changed' else 'was changed' end),
    'A change by hand was not tested, and the next migration overwrites it or fails.',
    case when coalesce(c.name, i.name) ~ '^(function|view) '
      then 'dibs migrate --repair installs the functions, views and grants again; keep your own things in another'
        ' schema'
      else 'change it back by hand; dibs sql shows how it is made' end,
    coalesce(c.name, i.name)
  from dibs.installed_code as i
  full join (select * from dibs._code_digests() union all select * from dibs._table_digests()) as c on c.name = i.name
  where i.digest is distinct from c.digest
  order by 3 limit 20;
end;

comment on function dibs._find_drift is
'Find functions, views, tables, indexes and triggers that were changed by hand since the install.';
