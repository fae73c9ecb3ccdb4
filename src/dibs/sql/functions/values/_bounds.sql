-- Bounds of arguments, and checks against them. docs/reference/bounds.md has the same list; a test compares them.

create or replace function dibs._bound(what text) returns integer
language sql immutable parallel safe
return case what
  when 'payload' then 256000000
  when 'headers' then 65536
  when 'claim' then 64000000
  when 'result' then 16000000
  when 'progress' then 16384
  when 'facts' then 16384
  when 'task' then 65536
  when 'schedule' then 250000
  when 'delivery' then 65536
  when 'error' then 65536
  when 'name' then 200
  when 'key' then 2000
  when 'resources' then 100
  when 'batch' then 100000
  when 'names' then 10000
  when 'queues' then 100000
end;

comment on function dibs._bound is
'Return the most that a caller may give of something: bytes of JSON (as text), characters, or a number of items. Null
for an unknown word.';

create or replace function dibs._may_exceed(value jsonb, most integer) returns boolean
language sql stable parallel safe
-- 16 bytes of jsonb can be a number of 147,456 digits, so the text may be almost 10,000 times as long.
return pg_column_size(value) > most / 10000;

comment on function dibs._may_exceed is
'False if JSON certainly has at most so many bytes as text. Cheap: it looks only at the binary size.';

create or replace function dibs._json_bytes_or_huge(value jsonb) returns integer
language plpgsql immutable parallel safe
as $$
begin
  return octet_length(value::text);
exception when program_limit_exceeded then
  return 2000000000;
end
$$;

comment on function dibs._json_bytes_or_huge is
'Return the bytes of JSON as text, or 2,000,000,000 if PostgreSQL cannot write so long a text.';

create or replace function dibs._json_bytes(value jsonb) returns integer
language sql stable parallel safe
return case
  when dibs._may_exceed(value, 1000000000) then dibs._json_bytes_or_huge(value)
  else octet_length(value::text) end;

comment on function dibs._json_bytes is
'Return the bytes of JSON as text, the form in which clients get it. 2,000,000,000 if it is too long to write.';

create or replace function dibs._check_json(what text, given jsonb, bound text) returns void
language plpgsql stable
as $$
begin
  if dibs._may_exceed(given, dibs._bound(bound)) and dibs._json_bytes(given) > dibs._bound(bound) then
    raise exception using errcode = 'DI012',
      message = format(
        '%s has %s bytes as JSON, and at most %s are taken', what, dibs._json_bytes(given), dibs._bound(bound)),
      hint = 'store it elsewhere and send its address';
  end if;
end
$$;

comment on function dibs._check_json is
'Refuse JSON whose text is longer than a bound. `what` names it in the message.';

create or replace function dibs._check_name(what text, name text, most integer default dibs._bound('name')) returns void
language plpgsql immutable
as $$
begin
  if name is null or length(name) not between 1 and most or name ~ '[[:cntrl:]]' then
    raise exception using errcode = 'DI010',
      message = format('%s has 1 to %s printable characters, not %s', what, most,
        coalesce(quote_literal(left(name, 80)), 'null'));
  end if;
end
$$;

comment on function dibs._check_name is
'Refuse a name that is null, empty or too long, or has control characters. `what` names it in the message.';

create or replace function dibs._check_items(verb text, items anyarray, bound text) returns anyarray
language plpgsql immutable
as $$
begin
  if array_ndims(items) > 1 then
    raise exception using errcode = 'DI010', message = format('%s takes arrays of one dimension', verb);
  end if;
  if cardinality(items) > dibs._bound(bound) then
    raise exception using errcode = 'DI010',
      message = format('%s takes at most %s at once, not %s', verb, dibs._bound(bound), cardinality(items)),
      hint = 'split it into several calls';
  end if;
  return items;
end
$$;

comment on function dibs._check_items is
'Return an array, or refuse it if it has more items than a bound, or more than one dimension.';
