-- progress: store how far a run has come, without renewing its lease.

create or replace function dibs.progress_many(ids uuid[], tokens uuid[], progress jsonb[])
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select r.item, r.id, r.answer from dibs._renew_leases('progress', ids, tokens, progress, renews => false) as r;
end
$$;

comment on function dibs.progress_many is
'Store how far many runs have come, without renewing their leases. Return for each item `ok`, `cancel` (stored, but the
job should stop), `busy` (locked by another transaction: try again) or `lost` (the token does not hold it).';

create or replace function dibs.progress(id uuid, token uuid, progress jsonb) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs._require_lease('progress', progress.id, (
    select r.answer from dibs.progress_many(array[progress.id], array[token], array[progress.progress]) as r));
end
$$;

comment on function dibs.progress is
'Store how far a run has come: {"done": 3, "of": 10, "message": "…", "data": {…}}, all of them optional. It replaces the
progress stored before; null deletes that. Return `ok`, `cancel` or `busy`, as `progress_many` does; raise DI001 if the
token does not hold the job.';
