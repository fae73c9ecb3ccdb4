-- Claims that make no sense.

create or replace function dibs._refuse_claim(queues text[], max integer, lease interval, token uuid) returns void
language plpgsql stable
as $$
begin
  perform dibs._check_isolation('claim');
  if coalesce(cardinality(queues), 0) = 0 then
    raise exception using errcode = 'DI010', message = 'claim needs the names of the queues to claim from',
      hint = 'such as: select * from dibs.claim(array[''mail''], 10)';
  end if;
  perform dibs._check_items('claim', queues, 'names');
  perform dibs._check_lease(lease);
  if max between 1 and 10000 then
    raise exception using errcode = 'DI010',
      message = format('a claim''s token is a random UUID (version 4), and a claim is repeated by its token; it got %s', coalesce(token::text, 'none')),
      hint = 'make one for each claim, such as gen_random_uuid(), or give none';
  end if;
  raise exception using errcode = 'DI010',
    message = format('claim takes 1 to 10000 jobs at once, not %s', coalesce(max::text, 'null'));
end
$$;

comment on function dibs._refuse_claim is 'Say in a sentence why a claim makes no sense.';

create or replace function dibs._is_random(token uuid) returns boolean
language sql immutable parallel safe
return substr(token::text, 15, 1) = '4';

comment on function dibs._is_random is 'Whether a UUID says of itself that it is random, and so cannot be guessed.';

create or replace function dibs._is_claim(queues text[], max integer, lease interval, token uuid) returns boolean
language sql stable
return current_setting('transaction_isolation') = 'read committed' and cardinality(queues) between 1 and dibs._bound('names')
  and max between 1 and 10000 and (lease between interval '100 milliseconds' and interval '7 days') is not false
  and dibs._is_random(token);

comment on function dibs._is_claim is 'Whether a claim may be made like this; otherwise, where it is false or null, _refuse_claim says what is wrong.';
