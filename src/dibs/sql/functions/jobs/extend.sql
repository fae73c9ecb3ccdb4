-- extend: the lease stays, and lasts longer.

create or replace function dibs.extend_many(
  ids uuid[], tokens uuid[], lease interval default null, progress jsonb[] default null)
returns table (item integer, id uuid, answer text, lease_until timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_done record;
begin
  perform dibs._check_isolation('extend');
  perform dibs._check_batch('extend', ids, tokens, cardinality(progress));
  perform dibs._check_lease(extend_many.lease);
  if progress is not null then
    perform dibs._check_progress(p) from unnest(progress) as p;
  end if;
  with asked as materialized (
    select * from unnest(ids, tokens, progress) as k (id, token, progress) order by k.id
  ), free as materialized (
    -- One handler's open transaction must not stop the heartbeats of all the others.
    select l.id, a.progress from asked as a
    cross join lateral (
      select l.id from dibs.lease as l where l.id = a.id and l.token = a.token for update skip locked) as l
  ), longer as (
    update dibs.lease as l
    set lease_until = v_now + coalesce(extend_many.lease, l.own_lease,
        dibs._lease_for(q.lease, q.lease_growth, q.lease_cap, l.charged)),
      progress = coalesce(f.progress, l.progress)
    from free as f, dibs.queue as q
    where l.id = f.id and q.id = l.queue_id
    returning l.id, l.cancel
  )
  select array_agg(l.id) as ids, array_agg(l.id) filter (where l.cancel is not null) as cancel into v_done from longer as l;
  return query
  select k.n::integer, k.id,
    case
      when l.id is null then 'lost'
      when k.id = any (v_done.cancel) then 'cancel'
      when k.id = any (v_done.ids) then 'ok'
      else 'busy'
    end,
    l.lease_until
  from unnest(ids, tokens) with ordinality as k (id, token, n)
  left join dibs.lease as l on l.id = k.id and l.token = k.token
  order by k.n;
end
$$;

comment on function dibs.extend_many is
'Renew many leases, by the policy or for `lease`, and store `progress` as `report` does. Answers for each item: `ok`; `cancel`
(renewed, but the job is to stop); `busy` (locked just now, try again); `lost` (the token does not hold it).';

create or replace function dibs.extend(
  id uuid, token uuid, lease interval default null, progress jsonb default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs._require_lease('extend', extend.id, (
    select e.answer from dibs.extend_many(array[extend.id], array[token], extend.lease, array[extend.progress]) as e));
end
$$;

comment on function dibs.extend is
'Renew a lease, by the policy or for `lease`, and store `progress` as `report` does. Answers `ok`, `cancel` or `busy`; raises DI001
when the token does not hold the job.';
