-- progress: the lease stays as it is, and says how far its run has come.

create or replace function dibs.progress_many(ids uuid[], tokens uuid[], progress jsonb[])
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select r.item, r.id, r.answer from dibs._renew_leases('progress', ids, tokens, progress, false, null) as r;
end
$$;

comment on function dibs.progress_many is
'Say how far many runs have come; their leases last as long as before. Answers for each item: `ok`; `cancel` (stored,
but the job should stop); `busy` (currently locked, try again); `lost` (the token does not hold it).';

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
'Say how far a run has come: {"done": 3, "of": 10, "message": "…", "data": {…}}, each of them optional; it takes the
place of what was said before, and null takes it back. Answers `ok`, `cancel` or `busy`; raises DI001 when the token
does not hold the job.';
