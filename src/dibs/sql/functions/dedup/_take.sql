-- An enqueue takes its keys, or finds who holds them.

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
  -- A holder may end between our failed insert and our look at it: then its key is free again, so try again.
  loop
    insert into dibs.fingerprint (hash, id, scope, until)
    values (_take_dedup_key.hash, _take_dedup_key.id, _take_dedup_key.scope, _take_dedup_key.until)
    on conflict do nothing;
    if found then
      holder := _take_dedup_key.id;
      return;
    end if;
    select f.id, f.scope, dibs._is_key_live(f, at) as held into v_key
    from dibs.fingerprint as f where f.hash = _take_dedup_key.hash;
    continue when not found;
    if not v_key.held or replaces then
      -- Locked before it is taken over, so that only one of several does; and looked at again after the wait.
      perform from dibs.fingerprint as f where f.hash = _take_dedup_key.hash and f.id = v_key.id for update;
      continue when not found;
      v_key.held := (select dibs._is_key_live(f, at) from dibs.fingerprint as f where f.hash = _take_dedup_key.hash);
    end if;
    if v_key.held and not replaces then
      -- A holder that has begun to run since an older snapshot keeps nobody out: then these locks raise 40001.
      if v_key.scope = 'waiting' and current_setting('transaction_isolation') <> 'read committed' then
        perform from dibs.ready as r where r.id = v_key.id for key share;
        perform from dibs.blocked as b where b.id = v_key.id for key share;
      end if;
      holder := v_key.id;
      outcome := 'duplicate';
      return;
    end if;
    if v_key.held and dibs._replace_holder(v_key.id, _take_dedup_key.id, at) then
      outcome := 'replaced';
    end if;
    delete from dibs.fingerprint as f where f.hash = _take_dedup_key.hash and f.id = v_key.id;
  end loop;
end
$$;

comment on function dibs._take_dedup_key is
'Take a dedup key for a job, also from a holder it no longer stands for or, with `replaces`, from any. Says who holds it
now, and `enqueued`, `duplicate` or `replaced` (a waiting job was ended for it).';

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

comment on function dibs._requested_keys is 'What each job of a batch asks of its dedup key.';

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

comment on function dibs._check_dedup is 'Refuse dedup options that make no sense; true for those that do.';

create or replace function dibs._refuse_duplicate(ord integer, queue text, holder uuid) returns void
language plpgsql stable
as $$
begin
  raise exception using errcode = 'DI040',
    message = format('job %s of the call was refused: job %s of queue %L has its dedup key', ord, holder, queue),
    hint = 'nothing was enqueued; leave on_duplicate at keep to be given that job''s id instead';
end
$$;

comment on function dibs._refuse_duplicate is 'Raise DI040.';

create or replace function dibs._take_dedup_keys(
  jobs jsonb, bodies bytea[], known uuid[], at timestamptz,
  out ids uuid[], out same uuid[], out hashes bytea[], out outcomes text[])
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_past uuid[];
  v_key record;
  v_best integer;
  v_holder uuid;
  v_outcome text;
begin
  select array_agg(coalesce((e.job ->> 'id')::uuid, dibs._new_id(dibs._id_tick(at) + e.ord)) order by e.ord)
  into ids from jsonb_array_elements(jobs) with ordinality as e (job, ord);
  hashes := array_fill(null::bytea, array[cardinality(ids)]);
  same := coalesce(known, array_fill(null::uuid, array[cardinality(ids)]));
  -- What is known was made by an earlier try, or is the same id twice in this batch; only the former has a past.
  if known is not null then
    -- Not a join, which would be planned for ten rows and compare each with each.
    select array_agg(case when k.id not in (select n.id from unnest(ids, known) as n (id, known) where n.known is null)
      then k.id end order by k.ord) into v_past
    from unnest(known) with ordinality as k (id, ord);
  end if;
  -- Sorted and one at a time, so that two batches of the same keys wait for each other in one order. Of a key's jobs
  -- the last that replaces stands for it, otherwise the first. One that an earlier try of this call made still stands
  -- for the others: if it ended in the meantime, the repeat must not add a job.
  for v_key in
    select k.hash, min(k.queue) as queue, array_agg(k.ord order by k.ord) as ords,
      array_agg(k.scope order by k.ord) as scopes, array_agg(k.stays order by k.ord) as stays,
      max(k.ord) filter (where k.on_duplicate = 'replace') as replacing,
      array_agg(k.ord order by k.ord) filter (where k.on_duplicate = 'refuse' and same[k.ord] is null) as refusing,
      (array_agg(v_past[k.ord] order by k.ord) filter (where v_past[k.ord] is not null))[1] as past
    from dibs._requested_keys(jobs, bodies) as k
    where case when num_nonnulls(k.scope, k.stays) > 0 or k.on_duplicate <> 'keep'
      then dibs._check_dedup(k.ord, k.hash, k.scope, k.stays, k.on_duplicate) else k.hash is not null end
    group by k.hash order by k.hash
  loop
    v_best := array_position(v_key.ords, coalesce(v_key.replacing, v_key.ords[1]));
    v_holder := v_key.past;
    v_outcome := 'duplicate';
    if v_holder is null then
      select t.holder, t.outcome into v_holder, v_outcome
      from dibs._take_dedup_key(v_key.hash, ids[v_key.ords[v_best]], v_key.scopes[v_best], at + v_key.stays[v_best],
        v_key.replacing is not null, at) as t;
    end if;
    if v_key.refusing is not null and (v_outcome = 'duplicate' or v_key.ords[1] <> all (v_key.refusing)
        or cardinality(v_key.refusing) > 1) then
      perform dibs._refuse_duplicate(
        case when v_outcome = 'duplicate' then v_key.refusing[1] else (
          select min(o) from unnest(v_key.refusing) as o where o > v_key.ords[1]) end, v_key.queue, v_holder);
    end if;
    if v_outcome = 'replaced' then
      outcomes[v_key.ords[v_best]] := v_outcome;
    end if;
    for n in 1 .. cardinality(v_key.ords) loop
      hashes[v_key.ords[n]] := v_key.hash;
      if v_holder <> ids[v_key.ords[n]] and same[v_key.ords[n]] is null then
        same[v_key.ords[n]] := v_holder;
      end if;
    end loop;
  end loop;
end
$$;

comment on function dibs._take_dedup_keys is
'Take the dedup keys of a batch. For each of its jobs: the id it is to have, its hash, the job that has its key instead
(`same`), and `replaced` where it took the place of a waiting job.';
