-- Dedup keys: what two jobs of a queue have in common while one stands for both. Nobody but the owner calls these.

create or replace function dibs.fingerprint_of(queue_id integer, dedup_key text) returns bytea
language sql immutable strict parallel safe
return sha256(convert_to(queue_id || ':' || dedup_key, 'UTF8'));

comment on function dibs.fingerprint_of is 'The hash that stands for a dedup key of a queue.';

-- No kind has a line break in it, and no key that was given begins with # where this does.
create or replace function dibs.fingerprint_of_arguments(queue_id integer, kind text, payload jsonb, body bytea)
returns bytea
language sql immutable parallel safe
return sha256(convert_to(queue_id || '#' || kind || E'\n' || coalesce(payload::text, 'null'), 'UTF8')
  || coalesce(body, ''::bytea));

comment on function dibs.fingerprint_of_arguments is
'The hash that stands for a kind and its payload, in a queue: the same JSON is the same, whatever the order of its names.';

create or replace function dibs.is_waiting(id uuid) returns boolean
language sql stable
return coalesce(
  (select true from dibs.ready as r where r.id = is_waiting.id),
  (select true from dibs.blocked as b where b.id = is_waiting.id), false);

comment on function dibs.is_waiting is 'Whether a job waits for a worker, now, later or for a slot.';

create or replace function dibs.is_held(key dibs.fingerprint, at timestamptz) returns boolean
language sql stable
return case
  when (key).until > at then true
  when (key).scope = 'window' then false
  when dibs.is_waiting((key).id) then true
  when (key).scope = 'waiting' then false
  else coalesce((select true from dibs.lease as l where l.id = (key).id), false)
end;

comment on function dibs.is_held is
'Whether a dedup key still stands for its job: within its time, or while the job waits or (unless its scope is waiting) runs.';

-- Skipping what is locked: whoever locked it is taking the key over, and nobody who ends a job waits for a producer. If
-- that producer rolls back, the key stays behind with a job that has ended, and is_held says that it is free.
create or replace function dibs.free_fingerprints(hashes bytea[], ids uuid[], keep_windows boolean default false)
returns void
language sql volatile
begin atomic
  delete from dibs.fingerprint as f
  using (
    select f.hash from unnest(hashes, ids) as k (hash, id)
    join dibs.fingerprint as f on f.hash = k.hash and f.id = k.id
    where k.hash is not null and not (keep_windows and f.until is not null)
    order by f.hash for update of f skip locked
  ) as k
  where f.hash = k.hash;
end;

comment on function dibs.free_fingerprints is
'Give back the dedup keys that these jobs hold; those held for a time stay with `keep_windows`, until `forget`.';

create or replace function dibs.unseat(id uuid, by uuid, at timestamptz) returns boolean
language plpgsql volatile
as $$
begin
  -- What is locked is being claimed or ended just now; waiting for it would turn the order of locks around.
  perform from dibs.ready as r where r.id = unseat.id for update skip locked;
  if not found then
    perform from dibs.blocked as b where b.id = unseat.id for update skip locked;
    if not found then
      return false;
    end if;
  end if;
  perform dibs.bury(array[unseat.id], 'cancelled', 'replaced by job ' || by, at);
  return true;
end
$$;

comment on function dibs.unseat is 'End a waiting job because another takes its place; false if it does not wait, or is locked.';

create or replace function dibs.take_fingerprint(
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
    values (take_fingerprint.hash, take_fingerprint.id, take_fingerprint.scope, take_fingerprint.until)
    on conflict do nothing;
    if found then
      holder := take_fingerprint.id;
      return;
    end if;
    select f.id, dibs.is_held(f, at) as held into v_key
    from dibs.fingerprint as f where f.hash = take_fingerprint.hash;
    continue when not found;
    if not v_key.held or replaces then
      -- Locked before it is taken over, so that of several who want to only one does; and looked at anew after the wait.
      perform from dibs.fingerprint as f where f.hash = take_fingerprint.hash and f.id = v_key.id for update;
      continue when not found;
      v_key.held := (select dibs.is_held(f, at) from dibs.fingerprint as f where f.hash = take_fingerprint.hash);
    end if;
    if v_key.held and not replaces then
      holder := v_key.id;
      outcome := 'duplicate';
      return;
    end if;
    if v_key.held and dibs.unseat(v_key.id, take_fingerprint.id, at) then
      outcome := 'replaced';
    end if;
    delete from dibs.fingerprint as f where f.hash = take_fingerprint.hash and f.id = v_key.id;
  end loop;
end
$$;

comment on function dibs.take_fingerprint is
'Take a dedup key for a job, also from a holder it no longer stands for or, with `replaces`, from any. Says who holds it
now, and `enqueued`, `duplicate` or `replaced` (a waiting job was ended for it).';

create or replace function dibs.asked_keys(jobs jsonb, bodies bytea[])
returns table (ord integer, queue text, hash bytea, scope text, stays interval, on_duplicate text)
language sql stable
begin atomic
  select a.ord::integer, a.queue,
    case
      when a.dedup_key is not null then dibs.fingerprint_of(coalesce(q.shard_of, q.id), a.dedup_key)
      when a.dedup then dibs.fingerprint_of_arguments(coalesce(q.shard_of, q.id), coalesce(a.kind, ''), a.payload,
        coalesce(bodies[a.ord], decode(a.body, 'base64')))
    end,
    nullif(coalesce(a.dedup_scope, case when a.dedup_for is not null then 'window' end), 'unfinished'),
    a.dedup_for, coalesce(a.on_duplicate, 'keep')
  from rows from (jsonb_to_recordset(jobs) as (
      queue text, kind text, payload jsonb, body text, dedup_key text, dedup boolean, dedup_scope text,
      dedup_for interval, on_duplicate text)) with ordinality
    as a (queue, kind, payload, body, dedup_key, dedup, dedup_scope, dedup_for, on_duplicate, ord)
  join dibs.queue as q on q.name = a.queue;
end;

comment on function dibs.asked_keys is 'What each job of a batch asks of its dedup key.';

create or replace function dibs.check_dedup(
  ord integer, hash bytea, scope text, stays interval, on_duplicate text) returns boolean
language plpgsql immutable
as $$
declare
  v_wrong text;
  v_hint text;
begin
  if scope not in ('waiting', 'window') then
    v_wrong := format('the dedup_scope %L', scope);
    v_hint := coalesce('did you mean ' || quote_literal(dibs.nearest(scope, '{waiting,unfinished,window}')) || '? ', '')
      || 'a key is held while its job is waiting, or unfinished (the default), or for a window of time';
  elsif on_duplicate not in ('keep', 'refuse', 'replace') then
    v_wrong := format('the on_duplicate %L', on_duplicate);
    v_hint := coalesce('did you mean ' || quote_literal(dibs.nearest(on_duplicate, '{keep,refuse,replace}')) || '? ', '')
      || 'it is keep (the default), refuse or replace';
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

comment on function dibs.check_dedup is 'Refuse dedup options that make no sense; true for those that do.';

create or replace function dibs.refuse_duplicate(ord integer, queue text, holder uuid) returns void
language plpgsql stable
as $$
begin
  raise exception using errcode = 'DI040',
    message = format('job %s of the call was refused: job %s of queue %L has its dedup key', ord, holder, queue),
    hint = 'nothing was enqueued; leave on_duplicate at keep to be given that job''s id instead';
end
$$;

comment on function dibs.refuse_duplicate is 'Raise DI040.';

create or replace function dibs.take_fingerprints(
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
  select array_agg(coalesce((e.job ->> 'id')::uuid, dibs.id_at(dibs.tick(at) + e.ord)) order by e.ord)
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
  -- Sorted and one at a time, so that two batches of the same keys wait for each other in one order. Of a key's jobs the
  -- last that replaces stands for it, else the first. One that an earlier try of this call made still stands for the
  -- others: its end in the meantime must not make the repeat add a job.
  for v_key in
    select k.hash, min(k.queue) as queue, array_agg(k.ord order by k.ord) as ords,
      array_agg(k.scope order by k.ord) as scopes, array_agg(k.stays order by k.ord) as stays,
      max(k.ord) filter (where k.on_duplicate = 'replace') as replacing,
      array_agg(k.ord order by k.ord) filter (where k.on_duplicate = 'refuse' and same[k.ord] is null) as refusing,
      (array_agg(v_past[k.ord] order by k.ord) filter (where v_past[k.ord] is not null))[1] as past
    from dibs.asked_keys(jobs, bodies) as k
    where case when num_nonnulls(k.scope, k.stays) > 0 or k.on_duplicate <> 'keep'
      then dibs.check_dedup(k.ord, k.hash, k.scope, k.stays, k.on_duplicate) else k.hash is not null end
    group by k.hash order by k.hash
  loop
    v_best := array_position(v_key.ords, coalesce(v_key.replacing, v_key.ords[1]));
    v_holder := v_key.past;
    v_outcome := 'duplicate';
    if v_holder is null then
      select t.holder, t.outcome into v_holder, v_outcome
      from dibs.take_fingerprint(v_key.hash, ids[v_key.ords[v_best]], v_key.scopes[v_best], at + v_key.stays[v_best],
        v_key.replacing is not null, at) as t;
    end if;
    if v_key.refusing is not null and (v_outcome = 'duplicate' or v_key.ords[1] <> all (v_key.refusing)
        or cardinality(v_key.refusing) > 1) then
      perform dibs.refuse_duplicate(
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

comment on function dibs.take_fingerprints is
'Take the dedup keys of a batch. For each of its jobs: the id it is to have, its hash, the job that has its key instead
(`same`), and `replaced` where it took the place of a waiting job.';

create or replace function dibs.forget_fingerprints() returns bigint
language plpgsql volatile
as $$
declare
  v_now timestamptz := dibs.now();
  v_gone bigint;
begin
  with gone as (
    delete from dibs.fingerprint as f
    using (
      select f.hash from dibs.fingerprint as f where f.until <= v_now and not dibs.is_held(f, v_now)
      order by f.hash limit 10000 for update skip locked
    ) as k
    where f.hash = k.hash
    returning 1)
  select count(*) into v_gone from gone;
  return v_gone;
end
$$;

comment on function dibs.forget_fingerprints is 'Delete dedup keys whose time is over and whose job does not need them.';
