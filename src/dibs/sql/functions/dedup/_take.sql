-- An enqueue takes its dedup keys, or finds the jobs that hold them.

create or replace function dibs._take_dedup_key(
  hash bytea, id uuid, scope text, until timestamptz, replaces boolean, at timestamptz,
  out holder uuid, out outcome text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_key record;
begin
  outcome := 'enqueued';
  -- The key may become free between the insert that fails and the select, so try again until one of them succeeds.
  loop
    insert into dibs.fingerprint (hash, id, scope, until)
    values (_take_dedup_key.hash, _take_dedup_key.id, _take_dedup_key.scope, _take_dedup_key.until)
    on conflict do nothing;
    if found then
      holder := _take_dedup_key.id;
      return;
    end if;
    select f.id, f.scope, dibs._is_key_live(f, at) as live into v_key
    from dibs.fingerprint as f where f.hash = _take_dedup_key.hash;
    continue when not found;
    if not v_key.live or replaces then
      -- Only one of several callers may take the key over: lock it, and then look at it again.
      perform from dibs.fingerprint as f where f.hash = _take_dedup_key.hash and f.id = v_key.id for update;
      continue when not found;
      v_key.live := (select dibs._is_key_live(f, at) from dibs.fingerprint as f where f.hash = _take_dedup_key.hash);
    end if;
    if v_key.live and not replaces then
      -- A holder of scope `waiting` that has begun to run since an older snapshot has lost its key: then these locks
      -- raise 40001.
      if v_key.scope = 'waiting' and current_setting('transaction_isolation') <> 'read committed' then
        perform from dibs.ready as r where r.id = v_key.id for key share;
        perform from dibs.blocked as b where b.id = v_key.id for key share;
      end if;
      holder := v_key.id;
      outcome := 'duplicate';
      return;
    end if;
    if v_key.live and dibs._lock_ticket(v_key.id) then
      perform dibs._end_waiting_jobs(array[v_key.id], 'cancelled', 'replaced by job ' || _take_dedup_key.id, at);
      outcome := 'replaced';
    end if;
    delete from dibs.fingerprint as f where f.hash = _take_dedup_key.hash and f.id = v_key.id;
  end loop;
end
$$;

comment on function dibs._take_dedup_key is
'Take a dedup key for job `id` if no live job holds it. If `replaces`, also take it from a live holder, and cancel that
one if it waits. Return the holder of the key, and `enqueued`, `duplicate` (another job holds it) or `replaced` (a
waiting job was cancelled).';

create or replace function dibs._retake_dedup_keys(ids uuid[], at timestamptz) returns void
language sql volatile
begin atomic
  -- A window runs from the original enqueue. A job whose key was held only by a window therefore neither retakes the
  -- key nor is blocked by another holder.
  select dibs._take_dedup_key(d.fingerprint, d.id, d.dedup_scope, null, false, at)
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

create or replace function dibs._requested_keys(jobs jsonb, bodies bytea[])
returns table (ord integer, queue text, hash bytea, scope text, stays interval, on_duplicate text)
language sql stable
begin atomic
  select a.ordinality::integer, a.queue,
    case
      when a.dedup_key is not null then dibs._fingerprint_of(coalesce(q.shard_of, q.id), a.dedup_key)
      when a.dedup then dibs._fingerprint_of_arguments(coalesce(q.shard_of, q.id), coalesce(a.kind, ''), a.payload,
        coalesce(bodies[a.ordinality], decode(a.body, 'base64')))
    end,
    nullif(coalesce(a.dedup_scope, case when a.dedup_for is not null then 'window' end), 'unfinished'),
    a.dedup_for, coalesce(a.on_duplicate, 'keep')
  from jsonb_populate_recordset(null::dibs.job_request, jobs) with ordinality as a
  join dibs.queue as q on q.name = a.queue;
end;

comment on function dibs._requested_keys is
'Return the dedup options of each job of a batch, with the hash of its key (null without one). `stays` is dedup_for.';

create or replace function dibs._check_dedup(
  ord integer, hash bytea, scope text, stays interval, on_duplicate text) returns boolean
language plpgsql immutable
as $$
declare
  v_wrong text;
  v_hint text;
begin
  if scope not in ('waiting', 'window') then
    perform dibs._refuse_unknown('DI010', format('job %s has the dedup_scope %L', ord, scope), scope,
      '{waiting,unfinished,window}',
      'a key is held while its job is waiting, or unfinished (the default), or for a window of time');
  elsif on_duplicate not in ('keep', 'refuse', 'replace') then
    perform dibs._refuse_unknown('DI010', format('job %s has the on_duplicate %L', ord, on_duplicate), on_duplicate,
      '{keep,refuse,replace}', 'it is keep (the default), refuse or replace');
  elsif stays <= interval '0' or stays > interval '10 years' then
    v_wrong := format('a dedup_for of %s', stays);
    v_hint := 'it is above 0 and up to 10 years';
  elsif scope = 'window' and stays is null then
    v_wrong := 'the dedup_scope window, and no dedup_for';
    v_hint := 'say for how long, such as "dedup_for": 60';
  elsif hash is null and (scope is not null or stays is not null or on_duplicate <> 'keep') then
    v_wrong := 'a dedup option, and no key it could be about';
    v_hint := 'give it a dedup_key, or "dedup": true to make one from its kind and payload';
  else
    return true;
  end if;
  raise exception using errcode = 'DI010', message = format('job %s has %s', ord, v_wrong), hint = v_hint;
end
$$;

comment on function dibs._check_dedup is
'Return true, or raise DI010 if a dedup option of a job is unknown, out of range or contradicts another.';

create or replace function dibs._refuse_duplicate(ord integer, queue text, holder uuid) returns void
language plpgsql stable
as $$
begin
  raise exception using errcode = 'DI040',
    message = format('job %s of the call was refused: job %s of queue %L has its dedup key', ord, holder, queue),
    hint = 'nothing was enqueued; leave on_duplicate at keep to be given that job''s id instead';
end
$$;

comment on function dibs._refuse_duplicate is 'Raise DI040: another job holds the dedup key of job `ord` of the call.';

create or replace function dibs._take_dedup_keys(
  jobs jsonb, bodies bytea[], inout duplicate_of uuid[], at timestamptz,
  out ids uuid[], out hashes bytea[], out outcomes text[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_earlier uuid[];
  v_key record;
  v_taker integer;
  v_holder uuid;
  v_outcome text;
  v_refused integer;
begin
  select array_agg(coalesce((e.job ->> 'id')::uuid, dibs._new_id(dibs._id_tick(at) + e.ord)) order by e.ord)
  into ids from jsonb_array_elements(jobs) with ordinality as e (job, ord);
  hashes := array_fill(null::bytea, array[cardinality(ids)]);
  -- v_earlier has the jobs that an earlier try of this call inserted: the duplicates whose id no new job of the batch
  -- has. Not a join: it would be planned for ten rows, and compare each with each.
  if duplicate_of is not null then
    select array_agg(case when k.id not in (select n.id from unnest(ids, duplicate_of) as n (id, known)
      where n.known is null) then k.id end order by k.ord) into v_earlier
    from unnest(duplicate_of) with ordinality as k (id, ord);
  end if;
  duplicate_of := coalesce(duplicate_of, array_fill(null::uuid, array[cardinality(ids)]));
  -- One key at a time, sorted by hash, so that two batches with the same keys wait for each other in one order. Of the
  -- jobs with one key, the last that replaces takes it, otherwise the first. A job of an earlier try keeps it even if
  -- that job has ended: a repeated call must not add a job.
  for v_key in
    select k.hash, min(k.queue) as queue, array_agg(k.ord order by k.ord) as ords,
      array_agg(k.scope order by k.ord) as scopes, array_agg(k.stays order by k.ord) as stays,
      max(k.ord) filter (where k.on_duplicate = 'replace') as replacing,
      array_agg(k.ord order by k.ord) filter (where k.on_duplicate = 'refuse' and duplicate_of[k.ord] is null)
        as refusing,
      (array_agg(v_earlier[k.ord] order by k.ord) filter (where v_earlier[k.ord] is not null))[1] as earlier
    from dibs._requested_keys(jobs, bodies) as k
    where case when num_nonnulls(k.scope, k.stays) > 0 or k.on_duplicate <> 'keep'
      then dibs._check_dedup(k.ord, k.hash, k.scope, k.stays, k.on_duplicate) else k.hash is not null end
    group by k.hash order by k.hash
  loop
    v_taker := array_position(v_key.ords, coalesce(v_key.replacing, v_key.ords[1]));
    v_holder := v_key.earlier;
    v_outcome := 'duplicate';
    if v_holder is null then
      select t.holder, t.outcome into v_holder, v_outcome
      from dibs._take_dedup_key(v_key.hash, ids[v_key.ords[v_taker]], v_key.scopes[v_taker],
        at + v_key.stays[v_taker], v_key.replacing is not null, at) as t;
    end if;
    if v_key.refusing is not null then
      v_refused := case when v_outcome = 'duplicate' then v_key.refusing[1]
        else (select min(o) from unnest(v_key.refusing) as o where o > v_key.ords[1]) end;
      if v_refused is not null then
        perform dibs._refuse_duplicate(v_refused, v_key.queue, v_holder);
      end if;
    end if;
    if v_outcome = 'replaced' then
      outcomes[v_key.ords[v_taker]] := v_outcome;
    end if;
    for n in 1 .. cardinality(v_key.ords) loop
      hashes[v_key.ords[n]] := v_key.hash;
      if v_holder <> ids[v_key.ords[n]] and duplicate_of[v_key.ords[n]] is null then
        duplicate_of[v_key.ords[n]] := v_holder;
      end if;
    end loop;
  end loop;
end
$$;

comment on function dibs._take_dedup_keys is
'Take the dedup keys of a batch. `duplicate_of` has the jobs whose ids exist already, and gets the holders of keys that
are not free. Return for each job its id, the hash of its key, and `replaced` if a waiting job was cancelled for it.
Raise DI040 for a duplicate with on_duplicate `refuse`.';
