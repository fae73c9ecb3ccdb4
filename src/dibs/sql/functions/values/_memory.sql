-- What a session remembers between calls.

create or replace function dibs._sealed(body text) returns text
language sql immutable parallel safe
return hashtextextended(body, 20001) || ':' || body;

comment on function dibs._sealed is 'A text with its checksum in front of it.';
