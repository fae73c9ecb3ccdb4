-- release: lease → ready, without charging an attempt.

create or replace function dibs.release_many(ids uuid[], tokens uuid[], delays interval[] default null)
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query select r.* from dibs._end_uncharged_runs('release', 'released', ids, tokens, delays) as r;
end
$$;

comment on function dibs.release_many is
'Give many jobs back unrun: they become ready in their old places, or after their `delays`, and no attempt is charged. A
job whose cancellation was requested ends as cancelled instead. Return `ok`, `already` or `lost` for each item.';

create or replace function dibs.release(id uuid, token uuid, delay interval default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs._require_lease('release', release.id, (
    select r.answer from dibs.release_many(array[release.id], array[token], array[delay]) as r));
end
$$;

comment on function dibs.release is
'Give a job back unrun: it becomes ready in its old place, or after `delay`, and no attempt is charged. Return `ok` or
`already`; raise DI001 if the token does not hold the job.';
