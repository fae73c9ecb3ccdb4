-- bells: which number rings for which queue.

create or replace function dibs.bells() returns table (number integer, queue text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select q.id, q.name from dibs.queue as q
  where not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true)
  order by q.id;
end;

comment on function dibs.bells is
'Worker protocol: the number with which each queue rings on the channel `dibs`, for those who listen. Every login may listen, so a ring does not
say the name of its queue.';
