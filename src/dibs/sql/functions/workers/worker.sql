-- Who is alive. A worker is one process start: the same name twice is two workers.

create or replace function dibs.register_worker(
  name text, facts jsonb default '{}', out worker uuid, out number bigint)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select dibs._check_name('a worker''s name', register_worker.name), dibs._check_facts(register_worker.facts);
  insert into dibs.worker (name, started_at, seen_at, facts)
  select register_worker.name, n.at, n.at, coalesce(register_worker.facts, '{}')
  from (select dibs.now() as at) as n
  returning secret, id;
end;

comment on function dibs.register_worker is
'Register a process start. Returns `worker`, a secret by which the other verbs know it, such as `claim`; and its number, for people
to read. `facts` is a JSON object (host, pid, version, …).';

create or replace function dibs.beat_worker(worker uuid) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update dibs.worker as w set seen_at = dibs.now() where w.id = dibs._worker_number(beat_worker.worker);
end
$$;

comment on function dibs.beat_worker is 'Say that a worker is alive; raises DI014 when it is not registered.';

create or replace function dibs.retire_worker(worker uuid) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  delete from dibs.worker as w where w.secret = retire_worker.worker;
end;

comment on function dibs.retire_worker is 'Strike a worker that stopped by itself off the list.';
