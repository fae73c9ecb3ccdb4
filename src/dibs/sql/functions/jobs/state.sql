-- What a job is now. One statement, one snapshot: a ticket is in one table or nowhere.

create or replace function dibs.states(ids uuid[]) returns table (id uuid, state text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
begin atomic
  select k.id,
    case when (select s.confined from dibs.setting as s) and dibs._is_hidden(k.id) then 'unknown' else coalesce(
    (select case when r.due_at > n.at then 'scheduled' else 'ready' end from dibs.ready as r where r.id = k.id),
    (select 'blocked' from dibs.blocked as b where b.id = k.id),
    (select 'running' from dibs.lease as l where l.id = k.id),
    (select d.state from dibs.dead as d where d.id = k.id),
    (select 'succeeded' from dibs.job as j where j.id = k.id),
    'unknown') end
  from unnest(dibs._check_items('states', ids, 'batch')) with ordinality as k (id, n), (select dibs.now() as at) as n
  order by k.n;
end;

comment on function dibs.states is
'The state of each job: scheduled, ready, blocked, running, succeeded, failed, exhausted, expired, cancelled, or
unknown (never committed, or pruned).';

create or replace function dibs.state(id uuid) returns text
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select s.state from dibs.states(array[state.id]) as s;
end;

comment on function dibs.state is 'The state of a job; see `states`.';
