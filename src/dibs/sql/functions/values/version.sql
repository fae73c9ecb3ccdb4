-- version: the installed schema and functions.

create or replace function dibs.version(out version integer, out code text, out oldest_client integer)
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce(max(m.version), 0), (select c.digest from dibs.code as c),
    (select c.oldest_client from dibs.code as c)
  from dibs.migration as m;
end;

comment on function dibs.version is
'Worker protocol: return the number of the newest applied migration, the digest of the installed functions, and the
oldest client that may use them, as the schema version that this client came with.';
