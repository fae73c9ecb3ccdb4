-- Register workers, keep them alive, stop them. A worker is one start of a process: the same name twice is two workers.

create or replace function dibs.register_worker(
  name text, facts jsonb default '{}', kinds text[] default null, out worker uuid, out number bigint)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select dibs._check_name('a worker''s name', register_worker.name), dibs._check_facts(register_worker.facts),
    dibs._check_kinds(register_worker.kinds);
  insert into dibs.worker (name, started_at, seen_at, facts, kinds)
  select register_worker.name, n.at, n.at, coalesce(register_worker.facts, '{}'), register_worker.kinds
  from (select dibs.now() as at) as n
  returning secret, id;
end;

comment on function dibs.register_worker is
'Worker protocol: register the start of a process. Returns `worker`, a secret that other verbs such as `claim` take, and
its `number`, for people to read. `facts` is a JSON object (host, pid, version, …) in which `queues` are the queues it
serves; `kinds` are the kinds it runs. With both, `why` can explain that no worker serves a job, and `unpark` knows
which jobs to make ready.';

create or replace function dibs.beat_worker(
  worker uuid, kinds text[] default null, cpu real default null, memory bigint default null) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_asked boolean;
begin
  perform dibs._check_kinds(beat_worker.kinds);
  update dibs.worker as w set seen_at = dibs.now(), kinds = coalesce(beat_worker.kinds, w.kinds),
    cpu = coalesce(beat_worker.cpu, w.cpu), memory = coalesce(beat_worker.memory, w.memory)
  where w.id = dibs._worker_number(beat_worker.worker)
  returning w.stop_asked_at is not null into v_asked;
  if not found then  -- `forget` or `retire_worker` has just deleted its row: raise DI014.
    perform dibs._worker_number(beat_worker.worker);
  end if;
  return v_asked;
end
$$;

comment on function dibs.beat_worker is
'Worker protocol: report that a worker is alive, the kinds it runs if they have changed, how many processors it kept
busy since the last heartbeat (`cpu`) and how many bytes of memory it uses. Null leaves a value as it is. Returns true
if the worker was asked to stop; raises DI014 if it is not registered.';

create or replace function dibs.stop_worker(number bigint) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_worker record;
begin
  update dibs.worker as w set stop_asked_at = coalesce(w.stop_asked_at, dibs.now())
  -- The view shows only workers that the caller may see.
  where w.id = (select v.id from dibs.workers as v where v.id = stop_worker.number)
  returning w.name, w.secret into v_worker;
  if not found then
    raise exception using errcode = 'DI014',
      message = format('there is no worker %s', coalesce(stop_worker.number::text, 'null')),
      hint = 'see the view dibs.workers';
  end if;
  perform dibs._audit('stop_worker', detail => jsonb_build_object('worker', stop_worker.number, 'name', v_worker.name));
  perform pg_notify('dibs', 'stop ' || left(encode(sha256(uuid_send(v_worker.secret)), 'hex'), 16));
  return 'requested';
end
$$;

comment on function dibs.stop_worker is
'Ask a worker to stop, by its number: it claims no more jobs, lets running jobs finish within its grace time, releases
the others and exits, as on SIGTERM. A notification tells it at once, and its next heartbeat in any case. Returns
`requested`; raises DI014 if there is no such worker.';

create or replace function dibs.retire_worker(worker uuid) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  delete from dibs.worker as w where w.secret = retire_worker.worker;
end;

comment on function dibs.retire_worker is
'Worker protocol: delete the row of a worker that has stopped. It has released its shards before; its leases stay.';
