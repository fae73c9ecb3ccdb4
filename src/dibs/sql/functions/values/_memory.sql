-- The memory of a session between calls: a setting dibs.<what>_<id> of its connection. It needs no row and no vacuum,
-- and a rollback restores it. The caller can change the setting. The checksum detects accidents only; forging it harms
-- the caller alone.
-- Raise the seed (20001) whenever the type of a remembered value changes. Sessions that are older than the migration
-- then recall nothing, instead of failing to parse the old value.

create or replace function dibs._remember(what text, id integer, body text) returns text
language sql volatile
return set_config('dibs.' || what || '_' || id, encode(int8send(hashtextextended(body, 20001)), 'hex') || body, false);

comment on function dibs._remember is
'Store a text in the session under a word and a number, with its checksum, 16 hex digits, in front.';

create or replace function dibs._recall(what text, id integer) returns text
language sql stable
return case
  when left(current_setting('dibs.' || what || '_' || id, true), 16) = encode(int8send(hashtextextended(
    substr(current_setting('dibs.' || what || '_' || id, true), 17), 20001)), 'hex')
  then substr(current_setting('dibs.' || what || '_' || id, true), 17)
end;

comment on function dibs._recall is
'Return the text that the session has stored under a word and a number; null if there is none, or its checksum is
wrong.';
