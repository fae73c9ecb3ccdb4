-- What a session remembers of a queue's pressure is the caller's to change, and decides whether the caller's jobs are taken. So
-- it is sealed with a secret of the database.

create or replace function dibs._pressure_seal(queue_id integer, body text) returns text
language sql stable
begin atomic
  -- Twice, as HMAC does. The secret is read at each call, and never a constant of a plan: anyone can have plans printed.
  select encode(sha256(s.secret || sha256(s.secret || convert_to(queue_id || ':' || body, 'UTF8'))), 'hex')
  from dibs.setting as s;
end;

comment on function dibs._pressure_seal is 'What proves that the database said this of a queue.';

create or replace function dibs._remember_pressure(queue_id integer, pressure dibs.pressure) returns void
language plpgsql volatile
as $$
begin
  perform dibs._remember('pressure', queue_id, dibs._pressure_seal(queue_id, pressure::text) || pressure::text);
end
$$;

comment on function dibs._remember_pressure is 'Keep in the session how full a queue is.';

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
'How full a queue is, as the session was told; null if it was told nothing, or something else since.';
