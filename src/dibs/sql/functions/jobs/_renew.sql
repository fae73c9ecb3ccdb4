-- A lease stays: it lasts longer, or says how far its run has come.

create or replace function dibs._renew_leases(
  verb text, ids uuid[], tokens uuid[], progress jsonb[], renews boolean, lease interval)
returns table (item integer, id uuid, answer text, lease_until timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_done record;
begin
  perform dibs._check_isolation(verb);
  perform dibs._check_batch(verb, ids, tokens, cardinality(progress));
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
  ), told as (
    update dibs.lease as l
    set lease_until = case when renews then v_now + coalesce(_renew_leases.lease, l.own_lease,
          dibs._lease_length(q.lease, q.lease_growth, q.lease_cap, l.charged)) else l.lease_until end,
      progress = case when renews then coalesce(f.progress, l.progress) else f.progress end
    from free as f, dibs.queue as q
    where l.id between f.id and f.id and q.id = l.queue_id
    returning l.id, l.cancel
  )
  select array_agg(t.id) as ids, array_agg(t.id) filter (where t.cancel is not null) as cancel
  into v_done from told as t;
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
  left join lateral (
    select l.id, l.lease_until from dibs.lease as l where l.id = k.id and l.token = k.token offset 0) as l on true
  order by k.n;
end
$$;

comment on function dibs._renew_leases is
'Store the progress of runs and, if it `renews`, let their leases last longer; without renewing, null progress clears
what was stored before.';
