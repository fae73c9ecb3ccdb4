-- Dedup keys as hashes, and whether a key is live.

create or replace function dibs._fingerprint_of(queue_id integer, dedup_key text) returns bytea
language sql immutable strict parallel safe
return sha256(convert_to(queue_id || ':' || dedup_key, 'UTF8'));

comment on function dibs._fingerprint_of is 'Return the hash of a dedup key of a queue.';

-- A job has a payload or a body, not both, and a kind has no line break, so different arguments give different texts.
-- `#` sets them apart from the given keys (`_fingerprint_of`). Without a payload, JSON null is hashed.
create or replace function dibs._fingerprint_of_arguments(queue_id integer, kind text, payload jsonb, body bytea)
returns bytea
language sql immutable parallel safe
return sha256(convert_to(queue_id || '#' || kind || E'\n' || coalesce(payload::text, 'null'), 'UTF8')
  || coalesce(body, ''::bytea));

comment on function dibs._fingerprint_of_arguments is
'Return the hash of a kind and its payload in a queue. The order of the names in a JSON payload makes no difference.';

create or replace function dibs._is_waiting(id uuid) returns boolean
language sql stable
return coalesce(
  (select true from dibs.ready as r where r.id = _is_waiting.id),
  (select true from dibs.blocked as b where b.id = _is_waiting.id), false);

comment on function dibs._is_waiting is 'Return whether a job is scheduled, ready or blocked.';

create or replace function dibs._is_key_live(key dibs.fingerprint, at timestamptz) returns boolean
language sql stable
return case
  -- A window ends early if its job has failed, expired or been cancelled.
  when (key).until > at then not exists (select from dibs.dead as d where d.id = (key).id)
  when (key).scope = 'window' then false
  when dibs._is_waiting((key).id) then true
  when (key).scope = 'waiting' then false
  else coalesce((select true from dibs.lease as l where l.id = (key).id), false)
end;

comment on function dibs._is_key_live is
'Return whether a job still holds a dedup key: within its window of time, unless the job is dead; with scope `waiting`
while the job waits; without a scope while it waits or runs.';
