-- The session's memory of a queue's pressure, sealed with a secret of the database: the caller can change it, and it
-- decides whether the caller's jobs are taken.

create or replace function dibs._pressure_seal(queue_id integer, body text) returns text
language sql stable
begin atomic
  -- Hash twice, as HMAC does. Read the secret at each call: as a constant of a plan, anyone could have it printed.
  select encode(sha256(s.secret || sha256(s.secret || convert_to(queue_id || ':' || body, 'UTF8'))), 'hex')
  from dibs.setting as s;
end;

comment on function dibs._pressure_seal is
'Return the seal that proves that the database wrote this text about a queue: 64 hexadecimal digits.';

create or replace function dibs._remember_pressure(queue_id integer, pressure dibs.pressure) returns void
language plpgsql volatile
as $$
begin
  perform dibs._remember('pressure', queue_id, dibs._pressure_seal(queue_id, pressure::text) || pressure::text);
end
$$;

comment on function dibs._remember_pressure is 'Remember in the session how full a queue is.';

create or replace function dibs._recall_pressure(queue_id integer) returns dibs.pressure
language plpgsql stable
as $$
declare
  v_text text := dibs._recall('pressure', queue_id);
  v_body text := substr(v_text, 65);
begin
  return case when left(v_text, 64) = dibs._pressure_seal(queue_id, v_body) then v_body::dibs.pressure end;
end
$$;

comment on function dibs._recall_pressure is
'Return how full a queue is, as the session remembers it; null if it remembers nothing, or the seal is wrong.';
