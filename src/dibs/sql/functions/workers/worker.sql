-- Who is alive. A worker is one process start: the same name twice is two workers.

create or replace function dibs.register_worker(name text, facts jsonb default '{}') returns bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  insert into dibs.worker (name, started_at, seen_at, facts)
  select register_worker.name, n.at, n.at, coalesce(register_worker.facts, '{}')
  from (select dibs.now() as at) as n
  returning id;
end;

comment on function dibs.register_worker is
'Register a process start and return its number, to be given to `claim`. `facts` is a JSON object (host, pid, version,
…).';

create or replace function dibs.beat_worker(worker bigint) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update dibs.worker as w set seen_at = dibs.now() where w.id = beat_worker.worker;
  if not found then
    raise exception using errcode = 'DI014', message = format('no worker %s is registered', worker),
      hint = 'register first: select dibs.register_worker(''name'')';
  end if;
end
$$;

comment on function dibs.beat_worker is 'Say that a worker is alive; raises DI014 when it is not registered.';

create or replace function dibs.retire_worker(worker bigint) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  delete from dibs.worker as w where w.id = retire_worker.worker;
end;

comment on function dibs.retire_worker is 'Strike a worker that stopped by itself off the list.';

create or replace function dibs.leads(worker bigint) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce(min(w.id) = leads.worker, false) from dibs.worker as w
  where w.facts @> '{"upkeep": true}' and w.seen_at > dibs.now() - interval '25 seconds';
end;

comment on function dibs.leads is
'Whether this worker is the one that does the upkeep: of those that were seen in the last 25 seconds and said in their
facts that they do it ("upkeep": true), the one registered first. Two may believe so for a moment, which does no harm.';
