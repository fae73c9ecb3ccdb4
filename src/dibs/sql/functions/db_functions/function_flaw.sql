-- function_flaw: the reason why a function may not be run as a job.

create or replace function dibs.function_flaw(oid oid) returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select case
    when p.oid is null then 'there is no such function'
    when p.pronamespace in ('dibs'::regnamespace, 'pg_catalog'::regnamespace)
      or n.nspname ~ '^pg_(temp|toast)' or n.nspname = 'information_schema'
      then 'it is not a business function: it lives in ' || n.nspname
    when p.prokind <> 'f' or p.proretset or p.provariadic <> 0 or p.pronargs <> 1
      or p.proargtypes[0] <> 'jsonb'::regtype or p.prorettype <> 'jsonb'::regtype
      then format('it is %s returning %s, and not a plain function of one jsonb that returns one jsonb',
        p.oid::regprocedure, pg_get_function_result(p.oid))
    when rival.name is not null
      then format('a call with one jsonb fits %s as well, by its defaults', rival.name)
    -- pg_temp stands once in the path, at its end.
    when p.prosecdef and array_positions(path.names, 'pg_temp') is distinct from array[cardinality(path.names)]
      then 'it is SECURITY DEFINER and pins no search_path that has pg_temp at its end only, so a temporary table can'
        ' capture it'
    when p.prosecdef and open_schema.name is not null
      then format(
        'it is SECURITY DEFINER and its search_path has %I, in which others may create things', open_schema.name)
    when p.prosecdef and exists (
      select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
      where a.grantee = 0 and a.privilege_type = 'EXECUTE')
      then 'it is SECURITY DEFINER and PUBLIC may execute it'
  end
  from (select function_flaw.oid) as f  -- one row, also if there is no such function
  left join pg_catalog.pg_proc as p on p.oid = f.oid
  left join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
  cross join lateral (select dibs._search_path(p.proconfig) as names) as path
  left join lateral (
    select s.name from unnest(path.names) as s (name)
    left join pg_catalog.pg_namespace as o on o.nspname = s.name
    where s.name not in ('pg_catalog', 'pg_temp') and (
      o.oid is null
      or not (o.nspowner = p.proowner or o.oid = 'dibs'::regnamespace or exists (
        select from pg_catalog.pg_roles as r
        where r.oid = o.nspowner and (r.rolsuper or r.rolname = 'pg_database_owner')))
      or exists (
        select from aclexplode(o.nspacl) as a
        where a.privilege_type = 'CREATE' and a.grantee not in (o.nspowner, p.proowner)))
    limit 1) as open_schema on true
  left join lateral (
    select o.oid::regprocedure::text as name from pg_catalog.pg_proc as o
    where o.pronamespace = p.pronamespace and o.proname = p.proname and o.proargtypes[0] = 'jsonb'::regtype
      and o.pronargs > 1 and o.pronargs - o.pronargdefaults <= 1
    order by o.oid limit 1) as rival on true;
end;

comment on function dibs.function_flaw is
'Worker protocol: the reason why workers may not run a function, in words; null if they may.';

create or replace function dibs._function_fix(oid oid, flaw text) returns text
language sql stable
return case
  when flaw like 'it is SECURITY DEFINER and PUBLIC%'
    then format('run: revoke execute on function %s from public', oid::regprocedure)
  when flaw like 'it is SECURITY DEFINER and its search_path has%'
    then format('pin schemas in which only the owner of %s may create things', oid::regprocedure)
  when flaw like 'it is SECURITY DEFINER%'
    then format('run: alter function %s set search_path = pg_catalog, pg_temp', oid::regprocedure)
  when flaw like 'a call with one jsonb fits%' then 'rename or drop the other one'
  else 'it takes the payload as jsonb and answers with an envelope, as dibs.envelope_ok makes it'
end;

comment on function dibs._function_fix is 'Say how to correct a flaw that function_flaw has found.';
