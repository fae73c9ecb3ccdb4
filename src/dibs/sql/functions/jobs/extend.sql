-- extend: renew a lease.

create or replace function dibs.extend_many(
  ids uuid[], tokens uuid[], lease interval default null, progress jsonb[] default null)
returns table (item integer, id uuid, answer text, lease_until timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if lease not between interval '100 ms' and interval '7 days' then
    raise exception using errcode = 'DI010',
      message = format('a lease lasts from 100 ms to 7 days, not %s', lease);
  end if;
  return query select r.* from dibs._renew_leases('extend', ids, tokens, progress, renews => true, lease => lease) as r;
end
$$;

comment on function dibs.extend_many is
'Renew many leases, for `lease` or as the policy says, and store `progress` as `progress_many` does. Return for each
item `ok`, `cancel` (renewed, but the job should stop), `busy` (locked by another transaction: try again) or `lost` (the
token does not hold it).';

create or replace function dibs.extend(
  id uuid, token uuid, lease interval default null, progress jsonb default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs._require_lease('extend', extend.id, (
    select e.answer from dibs.extend_many(array[extend.id], array[token], extend.lease, array[extend.progress]) as e));
end
$$;

comment on function dibs.extend is
'Renew a lease, for `lease` or as the policy says, and store `progress` as the verb `progress` does. Return `ok`,
`cancel` or `busy`, as `extend_many` does; raise DI001 if the token does not hold the job.';
