-- cancel: ready, blocked → dead. The holder of a running job is asked to stop.

create or replace function dibs._cancel_batch(
  ids uuid[], reason text, guarded boolean, includes_running boolean default true)
returns table (item integer, id uuid, answer text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_left uuid[] := array(select distinct k from unnest(dibs._check_items('cancel', ids, 'batch')) as k
    where k is not null order by k);
  v_dead uuid[] := '{}'::uuid[];
  v_asked uuid[] := '{}'::uuid[];
  v_reason text := nullif(dibs._clip_error(reason), '');
begin
  perform dibs._check_isolation('cancel');
  if guarded and dibs._is_confined() then
    v_left := array(select k from unnest(v_left) as k where not dibs._is_hidden_job(k) order by k);
  end if;
  -- A ticket may move between the statements, so repeat them for the jobs that still have one.
  loop
    v_dead := v_dead || array(select b.id from dibs._end_waiting_jobs(v_left, 'cancelled', v_reason, v_now) as b);
    with held as materialized (
      select l.id from unnest(v_left) as k (id)
      cross join lateral (select l.id from dibs.lease as l where includes_running and l.id = k.id for update) as l
    ), asked as (
      update dibs.lease as l set cancel = coalesce(l.cancel, v_reason, 'cancelled')
      from held as h where l.id between h.id and h.id returning l.id
    )
    select v_asked || array_agg(a.id) into v_asked from asked as a;
    v_left := array(
      select k from unnest(v_left) as k
      where k <> all (v_dead || v_asked) and coalesce(
        (select true from dibs.ready as r where r.id = k),
        (select true from dibs.blocked as b where b.id = k),
        (select true from dibs.lease as l where includes_running and l.id = k), false)
      order by k);
    exit when v_left = '{}';
  end loop;
  -- Notify the holders of runs, so that they extend their leases at once and learn of the request. Every login may
  -- listen to notifications, so a run is named by a hash that only its holder can recognize.
  perform pg_notify('dibs', 'stop ' || left(encode(sha256(uuid_send(l.id) || uuid_send(l.token)), 'hex'), 16))
  from unnest(v_asked) as k (id)
  cross join lateral (select l.id, l.token, l.queue_id from dibs.lease as l where l.id = k.id offset 0) as l
  where (select q.ring from dibs.queue as q where q.id = l.queue_id);
  return query
  select k.n::integer, k.id,
    case
      when k.id = any (v_dead) then 'cancelled'
      when k.id = any (v_asked) then 'requested'
      when guarded and (select s.confined from dibs.setting as s) and dibs._is_hidden_job(k.id) then 'unknown'
      when (select true from dibs.job as j where j.id = k.id) then 'ended'
      else 'unknown'
    end
  from unnest(ids) with ordinality as k (id, n) order by k.n;
end
$$;

comment on function dibs._cancel_batch is
'Cancel jobs, and return the answers of `cancel_many`. Wait for tickets that are locked. A run that was asked to stop
before keeps its first reason. If not `guarded`, a caller that is confined to other queues may cancel them: they are the
jobs of a schedule. Running jobs are asked to stop only if `includes_running`.';

create or replace function dibs.cancel_many(ids uuid[], reason text default 'cancelled by request')
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query select c.item, c.id, c.answer from dibs._cancel_batch(ids, cancel_many.reason, true) as c;
  perform dibs._audit_if_acting('cancel', jobs => cardinality(ids),
    detail => jsonb_build_object('reason', cancel_many.reason,
      'ids', case when cardinality(ids) <= 100 then to_jsonb(ids) end));
end
$$;

comment on function dibs.cancel_many is
'Cancel many jobs. Return for each `cancelled` (it waited and is dead now), `requested` (it runs; its holder is
notified, and `extend` answers `cancel`; any end of the run but success ends the job as cancelled), `ended` or
`unknown`.';

create or replace function dibs.cancel(id uuid, reason text default 'cancelled by request') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_answer text := (select c.answer from dibs.cancel_many(array[cancel.id], cancel.reason) as c);
begin
  if v_answer = 'unknown' then
    perform dibs._refuse_unknown_job(cancel.id);
  elsif v_answer = 'ended' then
    raise exception using errcode = 'DI003',
      message = format('job %s has already ended as %s', cancel.id, dibs._state(cancel.id)),
      hint = 'what has ended stays ended; retry brings a dead job back';
  end if;
  return v_answer;
end
$$;

comment on function dibs.cancel is
'Cancel a job. Return `cancelled` if it waited, `requested` if it runs and its holder was asked to stop, now or before;
raise DI003 if it has ended and DI002 if there is no such job.';

create or replace function dibs.cancel_key(queue text, dedup_key text, reason text default 'cancelled by request')
returns table (id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_hash bytea := dibs._fingerprint_of(
    dibs._shown_queue(dibs._queue_number(cancel_key.queue)), cancel_key.dedup_key);
  v_id uuid;
begin
  perform dibs._check_isolation('cancel_key');
  if v_hash is null then
    raise exception using errcode = 'DI010', message = 'cancel_key needs a dedup key, not null';
  end if;
  select f.id into v_id from dibs.fingerprint as f where f.hash = v_hash and dibs._is_key_live(f, v_now);
  if found then
    return query select c.id, c.answer from dibs.cancel_many(array[v_id], cancel_key.reason) as c;
  end if;
end
$$;

comment on function dibs.cancel_key is
'Cancel the job that holds a dedup key in a queue. Return its id and `cancelled` (it waited), `requested` (it runs, and
its holder was asked to stop), or, for a key that is held for a window of time, `ended` or `unknown` (its job was
deleted); no row if no job holds the key.';
