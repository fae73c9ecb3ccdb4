-- Running a function of the database.

create or replace function dibs.begin_function(name text) returns interval
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_timeout interval := (select f.timeout from dibs.find_function(name) as f);
begin
  perform set_config('statement_timeout', (extract(epoch from v_timeout) * 1000)::bigint::text, true);
  return v_timeout;
end
$$;

comment on function dibs.begin_function is
'Worker protocol: set the timeout of an allowed function for what follows in this transaction. A timeout counts for statements that
begin after it was set, so call this first and `run_function` next.';

create or replace function dibs.run_function(name text, payload jsonb) returns jsonb
language plpgsql volatile security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_found record;
  v_result jsonb;
begin
  select f.schema_name, f.function_name into v_found from dibs.find_function(run_function.name) as f;
  -- The names are the catalogue's own, found by equality; the payload is a parameter.
  execute format('select %I.%I($1)', v_found.schema_name, v_found.function_name)
    into v_result using coalesce(run_function.payload, '{}'::jsonb);
  return dibs.check_envelope(v_result, run_function.name);
end
$$;

comment on function dibs.run_function is
'Worker protocol: run an allowed function of the database with the caller''s own rights, and return its envelope. Raises DI070 when it
is not allowed, DI071 when it is no longer what was allowed, DI072 when what it returns is not an envelope.';

create or replace function dibs.run_job(id uuid, token uuid, name text, payload jsonb) returns jsonb
language plpgsql volatile security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_result jsonb := dibs.run_function(run_job.name, run_job.payload);
begin
  if (v_result ->> 'success')::boolean
    and dibs.complete(run_job.id, run_job.token, nullif(v_result -> 'payload', '{}')) = 'already' then
    -- This job was run to its end before, and the answer got lost: what was done now is not to count.
    raise exception using errcode = 'DI001', message = format('job %s is completed already', run_job.id);
  end if;
  return v_result;
end
$$;

comment on function dibs.run_job is
'Worker protocol: run an allowed function and complete the job with what its envelope carries, both or neither: what it wrote happens
exactly once. Returns the envelope; without success the job is not completed. Raises what run_function raises, and
DI001 when the token does not hold the job.';
