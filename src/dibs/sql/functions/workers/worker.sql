-- Who is alive. A worker is one process start: the same name twice is two workers.

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
'Register a process start. Returns `worker`, a secret by which the other verbs know it, such as `claim`; and its number, for people
to read. `facts` is a JSON object (host, pid, version, …), of which `queues` are those it serves; `kinds` are those it runs. With both, `why` can say
that nobody serves a job, and `unpark` knows what to bring.';

create or replace function dibs.beat_worker(worker uuid, kinds text[] default null) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform dibs._check_kinds(beat_worker.kinds);
  update dibs.worker as w set seen_at = dibs.now(), kinds = coalesce(beat_worker.kinds, w.kinds)
  where w.id = dibs._worker_number(beat_worker.worker);
end
$$;

comment on function dibs.beat_worker is
'Say that a worker is alive, and which kinds it runs if that has changed; raises DI014 when it is not registered.';

create or replace function dibs.retire_worker(worker uuid) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  delete from dibs.worker as w where w.secret = retire_worker.worker;
end;

comment on function dibs.retire_worker is 'Strike a worker that stopped by itself off the list.';
