-- What a session remembers between calls: a setting dibs.<what>_<id> of its connection. It makes no row and nothing to
-- vacuum, and a rollback restores it. The setting is the caller's to change, so it carries a checksum: that keeps accidents
-- out, and a forger harms only himself. Its seed counts the shapes of what is remembered: a session that was there before a migration
-- changed one then remembers nothing, where it would otherwise fail to read it.

create or replace function dibs._with_checksum(body text) returns text
language sql immutable parallel safe
return encode(int8send(hashtextextended(body, 20001)), 'hex') || body;

comment on function dibs._with_checksum is 'A text with its checksum in front of it: 16 digits.';

create or replace function dibs._remember(what text, id integer, body text) returns text
language sql volatile
return set_config('dibs.' || what || '_' || id, dibs._with_checksum(body), false);

comment on function dibs._remember is 'Keep a text in the session, under a word and a number.';

create or replace function dibs._without_checksum(given text) returns text
language sql immutable parallel safe
return case when left(given, 16) = encode(int8send(hashtextextended(substr(given, 17), 20001)), 'hex') then substr(given, 17) end;

comment on function dibs._without_checksum is 'A sealed text without its checksum; null if that is wrong.';

create or replace function dibs._recall(what text, id integer) returns text
language sql stable
return dibs._without_checksum(current_setting('dibs.' || what || '_' || id, true));

comment on function dibs._recall is 'What the session keeps under a word and a number; null if it keeps nothing that can be believed.';
