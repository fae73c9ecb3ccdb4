-- Running an allowed function.

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
'Worker protocol: set the timeout of an allowed function for the rest of this transaction, and return it. It holds for
statements that begin later, so call `run_function` in the next statement.';

create or replace function dibs.run_function(name text, payload jsonb) returns jsonb
language plpgsql volatile security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_found record;
  v_result jsonb;
begin
  select f.schema_name, f.function_name into v_found from dibs.find_function(run_function.name) as f;
  -- Safe to build as text: the names come from the catalogue, and the payload is a parameter.
  execute format('select %I.%I($1)', v_found.schema_name, v_found.function_name)
    into v_result using coalesce(run_function.payload, '{}'::jsonb);
  return dibs.check_envelope(v_result, run_function.name);
end
$$;

comment on function dibs.run_function is
'Worker protocol: run an allowed function with the caller''s own rights, and return its envelope. Raises DI070 if it is
not allowed, DI071 if it is no longer the function that was allowed, and DI072 if it does not return an envelope.';

create or replace function dibs.run_job(id uuid, token uuid, name text, payload jsonb) returns jsonb
language plpgsql volatile security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_result jsonb := dibs.run_function(run_job.name, run_job.payload);
begin
  if not (v_result ->> 'success')::boolean then
    -- The function's writes stay, so only the holder may make them: raise DI001 if the lease is lost.
    perform dibs.extend(run_job.id, run_job.token);
  elsif dibs.complete(run_job.id, run_job.token, nullif(v_result -> 'payload', '{}')) = 'already' then
    -- An earlier call has completed the job and its answer was lost. Roll back what the function did now.
    raise exception using errcode = 'DI001', message = format('job %s is completed already', run_job.id);
  end if;
  return v_result;
end
$$;

comment on function dibs.run_job is
'Worker protocol: run an allowed function, and complete the job with the payload of its envelope in the same
transaction: the writes of a success happen exactly once. Returns the envelope. Without success the job is not
completed, and the writes stay. Raises the errors of run_function, and DI001 if the token does not hold the job.';
