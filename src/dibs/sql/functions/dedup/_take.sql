-- Jobs take their dedup keys, or are duplicates of the jobs that hold them.

create or replace function dibs._take_over_dedup_key(
  wanted dibs.fingerprint, holder uuid, replaces boolean, at timestamptz) returns text
language plpgsql volatile
as $$
declare
  v_is_live boolean;
  v_outcome text := 'enqueued';
begin
  -- Only one of several callers may take the key over: lock it, then look again, because it may have changed.
  perform from dibs.fingerprint as f where f.hash = wanted.hash and f.id = holder for update;
  if not found then
    return null;
  end if;
  select dibs._is_key_live(f, at) into v_is_live from dibs.fingerprint as f where f.hash = wanted.hash;
  if v_is_live and not replaces then
    return null;
  end if;
  -- Does the holder wait? Then cancel it. Otherwise it goes on without the key: it runs, is being claimed, or has ended
  -- within its window.
  if v_is_live and dibs._lock_ticket(holder) then
    perform dibs._end_waiting_jobs(array[holder], 'cancelled', 'replaced by job ' || wanted.id, at);
    v_outcome := 'replaced';
  end if;
  -- The row is still there, or the cancellation has deleted it.
  insert into dibs.fingerprint (hash, id, scope, until)
  values (wanted.hash, wanted.id, wanted.scope, wanted.until)
  on conflict (hash) do update set id = excluded.id, scope = excluded.scope, until = excluded.until;
  return v_outcome;
end
$$;

comment on function dibs._take_over_dedup_key is
'Take a dedup key for the job `wanted.id` from its holder, if the key is no longer live, or if the job `replaces` the
holder. Return `replaced` if the holder waited and was cancelled, otherwise `enqueued`; null if the key has another
holder by now, or is live again.';

create or replace function dibs._take_dedup_key(
  wanted dibs.fingerprint, replaces boolean, at timestamptz, out holder uuid, out outcome text)
language plpgsql volatile
as $$
declare
  v_held record;
begin
  -- Each pass tries three steps. If another transaction frees or takes the key between two of them, try again.
  loop
    -- Is the key free? The insert waits for a transaction that is taking it.
    insert into dibs.fingerprint (hash, id, scope, until)
    values (wanted.hash, wanted.id, wanted.scope, wanted.until) on conflict do nothing;
    if found then
      holder := wanted.id;
      outcome := 'enqueued';
      return;
    end if;
    -- Does its holder keep it?
    select f.id, f.scope, not replaces and dibs._is_key_live(f, at) as is_kept into v_held
    from dibs.fingerprint as f where f.hash = wanted.hash;
    continue when not found;
    if v_held.is_kept then
      -- With scope `waiting`, the holder loses its key when it begins to run. The snapshot of a REPEATABLE READ
      -- transaction may be too old to see that: these locks then raise 40001.
      if v_held.scope = 'waiting' and current_setting('transaction_isolation') <> 'read committed' then
        perform from dibs.ready as r where r.id = v_held.id for key share;
        perform from dibs.blocked as b where b.id = v_held.id for key share;
      end if;
      holder := v_held.id;
      outcome := 'duplicate';
      return;
    end if;
    -- No: take the key from it.
    outcome := dibs._take_over_dedup_key(wanted, v_held.id, replaces, at);
    if outcome is not null then
      holder := wanted.id;
      return;
    end if;
  end loop;
end
$$;

comment on function dibs._take_dedup_key is
'Take a dedup key for the job `wanted.id`, unless another job holds it. If it `replaces`, take the key also from a job
that holds it: cancel that job if it waits, otherwise leave it alone. Return the holder of the key, and `enqueued` (the
key was taken), `replaced` (a waiting job was cancelled, too) or `duplicate` (another job holds it).';

create or replace function dibs._retake_dedup_keys(ids uuid[], at timestamptz) returns void
language sql volatile
begin atomic
  -- Scope `window`: the window began at the enqueue, and a retry does not begin another one. `offset 0`: sort before
  -- the calls, so that keys are locked in one order.
  select dibs._take_dedup_key(
    row(d.fingerprint, d.id, d.dedup_scope, null)::dibs.fingerprint, replaces => false, at => at)
  from (
    select distinct on (d.fingerprint) d.fingerprint, d.id, j.dedup_scope
    from dibs.dead as d join dibs.job as j on j.id = d.id
    where d.id = any (ids) and d.fingerprint is not null and j.dedup_scope is distinct from 'window'
    order by d.fingerprint, d.id offset 0
  ) as d;
end;

comment on function dibs._retake_dedup_keys is
'Take the dedup keys of dead jobs again, unless another job holds them now. Of several jobs with one key, the oldest
takes it.';

create or replace function dibs._refuse_duplicate(ord integer, queue text, holder uuid) returns void
language plpgsql stable
as $$
declare
  -- For a shard: the queue that it belongs to.
  v_queue text := (
    select s.name from dibs.queue as q join dibs.queue as s on s.id = dibs._shown_queue(q.id)
    where q.name = _refuse_duplicate.queue);
begin
  raise exception using errcode = 'DI040',
    message = format('job %s of the call was refused: job %s of queue %L has its dedup key', ord, holder, v_queue),
    hint = 'nothing was enqueued; leave on_duplicate at keep to be given that job''s id instead';
end
$$;

comment on function dibs._refuse_duplicate is 'Raise DI040: another job holds the dedup key of job `ord` of the call.';

create or replace function dibs._inserted_before(ids uuid[], duplicate_of uuid[]) returns uuid[]
language plpgsql immutable
as $$
begin
  return array(
    -- Jobs that this call inserts. `in` reads them into a hash table; a join would be planned for ten rows, and compare
    -- each row with each.
    with new_job as (
      select n.id from unnest(ids, duplicate_of) as n (id, duplicate_of) where n.duplicate_of is null
    )
    select case when d.id in (select n.id from new_job as n) then null else d.id end
    from unnest(duplicate_of) with ordinality as d (id, ord) order by d.ord);
end
$$;

comment on function dibs._inserted_before is
'Return, for each job of a batch, its id if an earlier call inserted it, otherwise null. `duplicate_of[i]` is the id
of a job whose id exists already, or stands earlier in the batch. In the second case the first of the two is new, and
both are null here.';

create or replace function dibs._take_dedup_keys(
  jobs jsonb, bodies bytea[], inout duplicate_of uuid[], at timestamptz,
  out ids uuid[], out hashes bytea[], out outcomes text[])
language plpgsql volatile
as $$
declare
  v_inserted_before uuid[];
  v_key record;
  v_wanted dibs.fingerprint;
  v_taken record;
  v_holder uuid;
  v_taker integer;
  v_ord integer;
begin
  ids := array(
    select coalesce((e.job ->> 'id')::uuid, dibs._new_id(dibs._id_tick(at) + e.ord))
    from jsonb_array_elements(jobs) with ordinality as e (job, ord) order by e.ord);
  hashes := array_fill(null::bytea, array[cardinality(ids)]);
  if duplicate_of is null then
    duplicate_of := array_fill(null::uuid, array[cardinality(ids)]);
  else
    v_inserted_before := dibs._inserted_before(ids, duplicate_of);
  end if;
  -- One key at a time, sorted by hash, so that two batches with the same keys wait for each other in one order.
  for v_key in select * from dibs._requested_keys(jobs, bodies) as k loop
    -- Did an earlier try of this call insert one of the jobs with this key? Then the call is a repeat, which must not
    -- add a job: that job counts as the holder, even if it has ended.
    v_holder := null;
    if v_inserted_before is not null then
      v_holder := (
        select v_inserted_before[o] from unnest(v_key.ords) as o
        where v_inserted_before[o] is not null order by o limit 1);
    end if;
    -- Otherwise, one of them, the first of `ords`, tries to take the key.
    if v_holder is null then
      v_taker := v_key.ords[1];
      v_wanted.hash := v_key.hash;
      v_wanted.id := ids[v_taker];
      v_wanted.scope := v_key.scope;
      v_wanted.until := at + v_key.dedup_for;
      v_taken := dibs._take_dedup_key(v_wanted, v_key.replaces, at);
      v_holder := v_taken.holder;
      if v_taken.outcome = 'replaced' then
        outcomes[v_taker] := 'replaced';
      end if;
    end if;
    -- All others are duplicates of the holder.
    foreach v_ord in array v_key.ords loop
      hashes[v_ord] := v_key.hash;
      if ids[v_ord] <> v_holder and duplicate_of[v_ord] is null then
        if v_ord = any (v_key.refusing) then
          perform dibs._refuse_duplicate(v_ord, v_key.queue, v_holder);
        end if;
        duplicate_of[v_ord] := v_holder;
      end if;
    end loop;
  end loop;
end
$$;

comment on function dibs._take_dedup_keys is
'Take the dedup keys of a batch. On entry, `duplicate_of` has the ids of jobs whose ids exist already (null if no job
does). On return it also has the holder for each job whose key another job holds; such a job raises DI040 if it refuses
to be a duplicate. Return for each job its id, the hash of its key, and `replaced` if a waiting job was cancelled for it
(`outcomes`, null if there is none).';
