-- Claims that make no sense.

create or replace function dibs._refuse_claim(queues text[], max integer, lease interval) returns void
language plpgsql stable
as $$
begin
  perform dibs._check_isolation('claim');
  if coalesce(cardinality(queues), 0) = 0 then
    raise exception using errcode = 'DI010', message = 'claim needs the names of the queues to claim from',
      hint = 'such as: select * from dibs.claim(array[''mail''], 10)';
  end if;
  perform dibs._check_lease(lease);
  raise exception using errcode = 'DI010',
    message = format('claim takes 1 to 10000 jobs at once, not %s', coalesce(max::text, 'null'));
end
$$;

comment on function dibs._refuse_claim is 'Say in a sentence why a claim makes no sense.';
