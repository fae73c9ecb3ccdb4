-- Checks that several verbs share. Each raises an error with a hint.

create or replace function dibs._check_isolation(verb text) returns void
language plpgsql stable
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'DI020',
      message = format('%s works in READ COMMITTED only; this transaction is %s', verb,
                       upper(current_setting('transaction_isolation'))),
      hint = 'use a separate transaction: BEGIN ISOLATION LEVEL READ COMMITTED';
  end if;
end
$$;

comment on function dibs._check_isolation is
'Refuse any isolation level but READ COMMITTED: a snapshot older than the locks would mislead the verb.';

create or replace function dibs._check_count(verb text, count integer) returns void
language plpgsql immutable
as $$
begin
  if count is null or count not between 1 and 100000 then
    raise exception using errcode = 'DI010',
      message = format('%s takes 1 to 100000 at once, not %s', verb, coalesce(count::text, 'null'));
  end if;
end
$$;

comment on function dibs._check_count is 'Refuse a maximum or count of a verb that is null or not from 1 to 100,000.';

create or replace function dibs._check_batch(verb text, ids uuid[], tokens uuid[], variadic others integer[])
returns void
language plpgsql stable
as $$
begin
  if cardinality(ids) is distinct from cardinality(tokens) or cardinality(ids) <> any (others) then
    raise exception using errcode = 'DI010',
      message = format('%s takes arrays of one length; it got %s ids, %s tokens and %s other values', verb,
        coalesce(cardinality(ids), 0), coalesce(cardinality(tokens), 0),
        coalesce(nullif(array_to_string(others, ', '), ''), 'no'));
  end if;
  if cardinality(ids) > dibs._constant('batch_bound') or array_ndims(ids) > 1 or array_ndims(tokens) > 1 then
    perform dibs._check_items(verb, ids, 'batch'), dibs._check_items(verb, tokens, 'batch');
  end if;
  if array_position(ids, null) is not null or array_position(tokens, null) is not null then
    raise exception using errcode = 'DI010', message = format('%s takes no null id and no null token', verb);
  end if;
end
$$;

comment on function dibs._check_batch is
'Refuse a batch whose arrays differ in length, are too long, have more than one dimension, or have a null id or token.
`others` are the lengths of further arrays; null for one that is not given.';

create or replace function dibs._check_delay(verb text, delay interval) returns interval
language plpgsql immutable
as $$
begin
  -- PostgreSQL compares a year as 360 days.
  if delay not between interval '0' and interval '365 days' then
    raise exception using errcode = 'DI010',
      message = format('%s takes a delay from 0 to 1 year, not %s', verb, delay);
  end if;
  return delay;
end
$$;

comment on function dibs._check_delay is 'Return a delay, or refuse it if it is negative or above a year.';

create or replace function dibs._check_delays(verb text, delays interval[]) returns interval[]
language plpgsql immutable
as $$
begin
  perform dibs._check_delay(verb, d) from unnest(delays) as d;
  return delays;
end
$$;

comment on function dibs._check_delays is 'Return delays, or refuse them if one is negative or above a year.';

create or replace function dibs._clip_error(error text) returns text
language sql immutable parallel safe
return left(error, dibs._constant('error_bound')::integer);

comment on function dibs._clip_error is 'Cut the text of an error to its bound of 65,536 characters.';

create or replace function dibs._nearest_word(word text, words text[]) returns text
language sql immutable parallel safe
begin atomic
  -- Words of the same letters come first: letters were swapped. For the others, count the letters that are equal at the
  -- same place from the front or from the back: a letter was mistyped, left out or added.
  select candidate.w
  from (
    select w,
      array(select regexp_split_to_table(lower(w), '') order by 1)
        = array(select regexp_split_to_table(lower(word), '') order by 1) as is_anagram,
      (select count(*) from generate_series(1, least(length(w), length(word))) as i
       where lower(substr(w, i, 1)) = lower(substr(word, i, 1))
         or lower(substr(reverse(w), i, 1)) = lower(substr(reverse(word), i, 1))) as equal_letters,
      greatest(length(w), length(word)) as longer_length,
      abs(length(w) - length(word)) as length_difference
    from unnest(words) as w
  ) as candidate
  where candidate.is_anagram or candidate.equal_letters * 2 > candidate.longer_length
  order by candidate.is_anagram desc, candidate.equal_letters - candidate.length_difference desc, candidate.w
  limit 1;
end;

comment on function dibs._nearest_word is
'Return the word of a list that is most similar to `word`, for "did you mean"; null if none is similar.';

create or replace function dibs._refuse_unknown(code text, sentence text, word text, known text[], advice text)
returns void
language plpgsql immutable
as $$
begin
  raise exception using errcode = code, message = sentence,
    hint = coalesce('did you mean ' || quote_literal(dibs._nearest_word(word, known)) || '? ', '') || advice;
end
$$;

comment on function dibs._refuse_unknown is
'Raise an error about an unknown word. The hint offers the most similar known one, followed by `advice`.';

create or replace function dibs._refuse_unknown_name(code text, owner text, kind text, word text, known text[])
returns void
language sql immutable
return dibs._refuse_unknown(code, format('a %s has no %s %L', owner, kind, word), word, known,
  format('the %ss are %s', kind, array_to_string(known, ', ')));

comment on function dibs._refuse_unknown_name is
'Raise an error about an unknown name: "a <owner> has no <kind> <word>". The hint lists the known names.';

-- Immutable, so that plans hold the names as a constant. No plan holds old names: an install that changes a type also
-- replaces the functions that call this one, and with them their plans.
create or replace function dibs._field_names(type regclass) returns text[]
language sql immutable parallel safe
begin atomic
  select array_agg(a.attname::text order by a.attnum) from pg_catalog.pg_attribute as a
  where a.attrelid = type and a.attnum > 0 and not a.attisdropped;
end;

comment on function dibs._field_names is 'Return the names of the fields of a composite type, in order.';

create or replace function dibs._check_json_keys(code text, owner text, kind text, given jsonb, known text[])
returns void
language sql immutable
begin atomic
  select dibs._refuse_unknown_name(code, owner, kind, min(k), known)
  from jsonb_object_keys(given) as k where k <> all (known) having count(*) > 0;
end;

comment on function dibs._check_json_keys is 'Refuse a JSON object with a key that is not a known name.';

create or replace function dibs._check_moved(deleted bigint, inserted bigint) returns void
language plpgsql immutable
as $$
begin
  if inserted is distinct from deleted then
    raise exception using errcode = 'DI090',
      message = format('%s tickets were to be moved, and %s arrived', deleted, inserted),
      hint = 'nothing was changed and no job is lost; this is a defect of dibs, so please report it';
  end if;
end
$$;

comment on function dibs._check_moved is
'Raise DI090 unless as many tickets were inserted as deleted. For functions that move tickets in two statements.';
