-- What the allow-list is made of. Nobody but the owner calls these.

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
    when p.prosecdef and not exists (
      select from unnest(p.proconfig) as c where c ~ '^search_path=(.*[, ])?"?pg_temp"?$')
      then 'it is SECURITY DEFINER and pins no search_path that ends in pg_temp, so a temporary table can capture it'
    when p.prosecdef and exists (
      select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
      where a.grantee = 0 and a.privilege_type = 'EXECUTE')
      then 'it is SECURITY DEFINER and PUBLIC may execute it'
  end
  from (select function_flaw.oid) as f
  left join pg_catalog.pg_proc as p on p.oid = f.oid
  left join pg_catalog.pg_namespace as n on n.oid = p.pronamespace;
end;

comment on function dibs.function_flaw is
'What keeps a function from being run by a worker, in words; null when nothing does.';

create or replace function dibs.function_cure(oid oid) returns text
language sql stable
begin atomic
  select case
    when dibs.function_flaw(p.oid) ~ 'PUBLIC'
      then format('run: revoke execute on function %s from public', p.oid::regprocedure)
    when dibs.function_flaw(p.oid) ~ 'search_path'
      then format('run: alter function %s set search_path = pg_catalog, pg_temp', p.oid::regprocedure)
    else 'it takes the payload as jsonb and answers with an envelope, as dibs.result_ok makes it'
  end
  from pg_catalog.pg_proc as p where p.oid = function_cure.oid;
end;

comment on function dibs.function_cure is 'What to do about a function''s flaw.';

create or replace function dibs.envelope_flaw(result jsonb) returns text
language sql immutable
begin atomic
  select case
    when result is null then 'it returned null'
    when jsonb_typeof(result) <> 'object' then format('it returned a JSON %s, not an object', jsonb_typeof(result))
    when result - '{success,error,validation_failure_message,payload}'::text[] <> '{}' then format(
      'it has the key %L, which no envelope has',
      (select min(k) from jsonb_object_keys(result - '{success,error,validation_failure_message,payload}'::text[]) as k))
    when jsonb_typeof(result -> 'success') is distinct from 'boolean' then '"success" is not true or false'
    when coalesce(jsonb_typeof(result -> 'error'), 'null') not in ('string', 'null') then '"error" is not a text'
    when coalesce(jsonb_typeof(result -> 'validation_failure_message'), 'null') not in ('string', 'null')
      then '"validation_failure_message" is not a text'
    when coalesce(jsonb_typeof(result -> 'payload'), 'null') not in ('object', 'null')
      then '"payload" is not an object'
    when (result ->> 'success')::boolean
      and coalesce(result ->> 'error', '') || coalesce(result ->> 'validation_failure_message', '') <> ''
      then 'it says success and an error at once'
    when not (result ->> 'success')::boolean
      and (coalesce(result ->> 'error', '') = '') = (coalesce(result ->> 'validation_failure_message', '') = '')
      then 'without success it needs either an error or a validation_failure_message, and not both'
  end;
end;

comment on function dibs.envelope_flaw is 'What is wrong with an envelope, in words; null when nothing is.';
