-- The search_path that a function pins, and the check of an envelope.

create or replace function dibs._search_path(config text[]) returns text[]
language sql immutable
begin atomic
  -- A name with a comma is in quotes, so splitting at commas does not work.
  select array_agg(coalesce(replace(m.m[1], '""', '"'), m.m[2]) order by m.n)
  from unnest(config) as c
  cross join lateral regexp_matches(substr(c, length('search_path=') + 1), '"((?:[^"]|"")*)"|([^",\s]+)', 'g')
    with ordinality as m (m, n)
  where c like 'search\_path=%';
end;

comment on function dibs._search_path is
'The schemas of the search_path in a function''s settings (pg_proc.proconfig), in order; null if it pins none.';

create or replace function dibs._envelope_flaw(result jsonb) returns text
language sql immutable
begin atomic
  select case
    when result is null then 'it returned null'
    when jsonb_typeof(result) <> 'object' then format('it returned a JSON %s, not an object', jsonb_typeof(result))
    when result - '{success,error,validation_failure_message,payload}'::text[] <> '{}' then format(
      'it has the key %L, which no envelope has',
      (select min(k)
       from jsonb_object_keys(result - '{success,error,validation_failure_message,payload}'::text[]) as k))
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

comment on function dibs._envelope_flaw is 'Describe why a value is not a valid envelope; null if it is one.';
