-- The envelope a function answers with.

create or replace function dibs.check_envelope(result jsonb, name text default null) returns jsonb
language plpgsql immutable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_flaw text := dibs._envelope_flaw(result);
begin
  if v_flaw is not null then
    raise exception using errcode = 'DI072',
      message = format('%s broke its contract: %s', coalesce(name, 'the function'), v_flaw),
      hint = 'return dibs.envelope_ok(payload), dibs.envelope_error(text) or dibs.envelope_invalid(text)';
  end if;
  return jsonb_build_object(
    'success', result -> 'success', 'error', coalesce(result ->> 'error', ''),
    'validation_failure_message', coalesce(result ->> 'validation_failure_message', ''),
    'payload', coalesce(nullif(result -> 'payload', 'null'), '{}'));
end
$$;

comment on function dibs.check_envelope is
'Read an envelope strictly: an object of success, error, validation_failure_message and payload and nothing else, in
which exactly one of the three is said. Returns it with every key there; raises DI072.';

create or replace function dibs.envelope_ok(payload jsonb default '{}') returns jsonb
language plpgsql immutable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs.check_envelope(jsonb_build_object('success', true, 'payload', payload), 'envelope_ok');
end
$$;

comment on function dibs.envelope_ok is 'The envelope of a function that succeeded, with what it has to say.';

create or replace function dibs.envelope_error(error text) returns jsonb
language plpgsql immutable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs.check_envelope(jsonb_build_object('success', false, 'error', error), 'envelope_error');
end
$$;

comment on function dibs.envelope_error is
'The envelope of an operational error: it is logged, and the job is tried again by its policy.';

create or replace function dibs.envelope_invalid(message text) returns jsonb
language plpgsql immutable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs.check_envelope(
    jsonb_build_object('success', false, 'validation_failure_message', message), 'envelope_invalid');
end
$$;

comment on function dibs.envelope_invalid is
'The envelope of a validation failure: what was asked can never work, and nothing is wrong with the worker.';
