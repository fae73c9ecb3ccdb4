-- The envelope that a function returns.

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
'Check an envelope: an object with no other keys than success, error, validation_failure_message and payload, that says
success or one of the two failures. Returns it with all four keys; raises DI072. `name`: the function, for the
message.';

create or replace function dibs.envelope_ok(payload jsonb default '{}') returns jsonb
language plpgsql immutable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs.check_envelope(jsonb_build_object('success', true, 'payload', payload), 'envelope_ok');
end
$$;

comment on function dibs.envelope_ok is 'The envelope of success. The payload becomes the result of the job.';

create or replace function dibs.envelope_error(error text) returns jsonb
language plpgsql immutable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs.check_envelope(jsonb_build_object('success', false, 'error', error), 'envelope_error');
end
$$;

comment on function dibs.envelope_error is
'The envelope of an operational error. The error is logged, and the job is retried by its policy.';

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
'The envelope of a validation failure: the payload can never work, so the job fails without a retry.';
