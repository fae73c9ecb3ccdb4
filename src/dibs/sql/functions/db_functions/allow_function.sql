-- The allow-list: functions of the database that a worker may run.

create or replace function dibs.allow_function(function regprocedure, timeout interval default '30 seconds')
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_flaw text := dibs.function_flaw(function);
  v_name text;
begin
  if v_flaw is not null then
    raise exception using errcode = 'DI071',
      message = format('%s cannot be allowed: %s', coalesce(function::text, 'null'), v_flaw),
      hint = dibs._function_fix(function, v_flaw);
  end if;
  if timeout is null or timeout not between interval '10 milliseconds' and interval '1 day' then
    raise exception using errcode = 'DI010',
      message = format('a function''s timeout is from 10 ms to 1 day, not %s', coalesce(timeout::text, 'null'));
  end if;
  insert into dibs.allowed_function (name, schema_name, function_name, owner, timeout)
  select format('%I.%I', n.nspname, p.proname), n.nspname, p.proname, pg_get_userbyid(p.proowner),
    allow_function.timeout
  from pg_catalog.pg_proc as p join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
  where p.oid = function
  on conflict (name) do update
  set owner = excluded.owner, timeout = excluded.timeout, allowed_at = excluded.allowed_at,
    allowed_by = excluded.allowed_by
  returning name into v_name;
  perform dibs._audit(
    'allow_function', detail => jsonb_build_object('function', v_name, 'timeout', allow_function.timeout));
  return v_name;
end
$$;

comment on function dibs.allow_function is
'Allow workers to run a function of the database. It takes one jsonb, returns jsonb, and has no overload that fits the
same call. If it is SECURITY DEFINER, it pins a search_path that ends in pg_temp, and PUBLIC may not execute it.
Otherwise raises DI071. Returns the name to run it by. The role of the worker still needs EXECUTE on it.';

create or replace function dibs.disallow_function(name text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from dibs.allowed_function as f where f.name = disallow_function.name;
  if found then
    perform dibs._audit('disallow_function', detail => jsonb_build_object('function', name));
    return true;
  end if;
  return false;
end
$$;

comment on function dibs.disallow_function is
'Remove a function from the allow-list, by the name that allow_function returned. Returns false if it was not on it.';

create or replace function dibs.find_function(
  name text, out schema_name name, out function_name name, out timeout interval)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_found record;
  v_flaw text;
begin
  -- Compare names for equality. Never parse the requested name.
  select f.*, p.oid, pg_get_userbyid(p.proowner) as owner_now into v_found
  from dibs.allowed_function as f
  left join pg_catalog.pg_namespace as n on n.nspname = f.schema_name
  left join pg_catalog.pg_proc as p
    on p.pronamespace = n.oid and p.proname = f.function_name and p.pronargs = 1
      and p.proargtypes[0] = 'jsonb'::regtype
  where f.name = find_function.name
    and (not dibs._is_confined() or f.name in (select v.name from dibs.functions as v));
  -- If the function itself is gone, its oid is null, which is a flaw.
  if not found then
    perform dibs._refuse_unknown('DI070',
      format('%s is not a function that may be run', coalesce(quote_literal(left(name, 200)), 'null')), left(name, 200),
      array(select f.name from dibs.functions as f),
      'an administrator allows one with: select dibs.allow_function(''schema.function(jsonb)'')');
  end if;
  v_flaw := case
    when v_found.owner_now <> v_found.owner
      then format('it belonged to %I when it was allowed and belongs to %I now', v_found.owner, v_found.owner_now)
    else dibs.function_flaw(v_found.oid)
  end;
  if v_flaw is not null then
    raise exception using errcode = 'DI071', message = format('%s may no longer be run: %s', v_found.name, v_flaw),
      hint = 'correct it, or look at it and allow it again with dibs.allow_function';
  end if;
  schema_name := v_found.schema_name;
  function_name := v_found.function_name;
  timeout := v_found.timeout;
end
$$;

comment on function dibs.find_function is
'Worker protocol: look up a function on the allow-list by its exact name, and check that it is still the function that
was allowed. Raises DI070 if it is not on the list, and DI071 if its owner has changed or it has a flaw.';
