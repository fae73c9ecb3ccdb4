-- bells: the number by which each queue is named in notifications.

create or replace function dibs.bells() returns table (number integer, queue text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select q.id, q.name from dibs.queue as q
  where not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true)
  order by q.id;
end;

comment on function dibs.bells is
'Worker protocol: the number by which each queue is named in notifications on the channel `dibs`. Every login may listen
to the channel, so notifications do not contain names of queues.';
