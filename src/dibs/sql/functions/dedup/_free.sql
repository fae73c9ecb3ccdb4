-- Dedup keys are freed when their job has ended or their time is over.

-- Skip a locked key: a producer is taking it over, and a verb that ends jobs does not wait for producers. If that
-- producer rolls back, the row stays behind, no longer live. The next enqueue with this key takes it over.
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
'Free the dedup keys that jobs hold: `hashes[i]` is the key of job `ids[i]`, or null. With `keep_windows`, a key that is
held for a window of time stays until `_forget_dedup_keys` deletes it.';

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
'Delete dedup keys whose window of time is over and that are no longer live, up to 10,000. Return how many.';
