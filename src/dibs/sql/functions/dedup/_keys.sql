-- Dedup keys as fingerprints, and whether one is held.

create or replace function dibs._fingerprint_of(queue_id integer, dedup_key text) returns bytea
language sql immutable strict parallel safe
return sha256(convert_to(queue_id || ':' || dedup_key, 'UTF8'));

comment on function dibs._fingerprint_of is 'The hash that stands for a dedup key of a queue.';

-- No kind has a line break in it, and no key that was given begins with # where this does.
create or replace function dibs._fingerprint_of_arguments(queue_id integer, kind text, payload jsonb, body bytea)
returns bytea
language sql immutable parallel safe
return sha256(convert_to(queue_id || '#' || kind || E'\n' || coalesce(payload::text, 'null'), 'UTF8')
  || coalesce(body, ''::bytea));

comment on function dibs._fingerprint_of_arguments is
'The hash that stands for a kind and its payload, in a queue: the same JSON is the same, whatever the order of its
names.';

create or replace function dibs._is_waiting(id uuid) returns boolean
language sql stable
return coalesce(
  (select true from dibs.ready as r where r.id = _is_waiting.id),
  (select true from dibs.blocked as b where b.id = _is_waiting.id), false);

comment on function dibs._is_waiting is 'Whether a job waits for a worker, now, later or for a slot.';

create or replace function dibs._is_key_live(key dibs.fingerprint, at timestamptz) returns boolean
language sql stable
return case
  when (key).until > at then true
  when (key).scope = 'window' then false
  when dibs._is_waiting((key).id) then true
  when (key).scope = 'waiting' then false
  else coalesce((select true from dibs.lease as l where l.id = (key).id), false)
end;

comment on function dibs._is_key_live is
'Whether a dedup key still stands for its job: within its time, or while the job waits or (unless its scope is waiting)
runs.';
