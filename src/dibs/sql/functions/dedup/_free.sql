-- Keys are freed when their time is over.

-- Skipping what is locked: it is being taken over, and nobody who ends a job waits for a producer. If
-- that producer rolls back, the key stays behind with a job that has ended, and is_held says that it is free.
create or replace function dibs._free_dedup_keys(hashes bytea[], ids uuid[], keep_windows boolean default false)
returns void
language sql volatile
begin atomic
  delete from dibs.fingerprint as f
  where f.hash = any (array(
    select f.hash
    from (select k.hash, k.id from unnest(hashes, ids) as k (hash, id) where k.hash is not null order by k.hash) as k
    cross join lateral (
      select f.hash from dibs.fingerprint as f
      where f.hash = k.hash and f.id = k.id and not (keep_windows and f.until is not null)
      for update skip locked) as f));
end;

comment on function dibs._free_dedup_keys is
'Give back the dedup keys that these jobs hold; those held for a time stay with `keep_windows`, until `forget`.';

create or replace function dibs._forget_dedup_keys() returns bigint
language plpgsql volatile
as $$
declare
  v_now timestamptz := dibs.now();
  v_gone bigint;
begin
  with gone as (
    delete from dibs.fingerprint as f
    using (
      select f.hash from dibs.fingerprint as f where f.until <= v_now and not dibs._is_key_live(f, v_now)
      order by f.hash limit 10000 for update skip locked
    ) as k
    where f.hash = k.hash
    returning 1)
  select count(*) into v_gone from gone;
  return v_gone;
end
$$;

comment on function dibs._forget_dedup_keys is
'Delete dedup keys whose time is over and whose job does not need them.';
