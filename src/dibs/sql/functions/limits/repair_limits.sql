-- repair_limits: mend limits whose units do not add up, and delete limits that were dropped.

create or replace function dibs._wrong_limits() returns table (id integer, missing integer)
language sql stable
begin atomic
  -- Count in one statement, so in one snapshot: every transaction keeps free + held = concurrency + debt.
  with held as (
    select u.id, sum(u.units) as units
    from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units) group by 1
  ), free as (
    select s.limit_id as id, sum(s.units) as units from dibs.limit_unit as s group by 1
  )
  select r.id, (r.concurrency + r.debt - coalesce(h.units, 0) - coalesce(f.units, 0))::integer
  from dibs.limit_rule as r left join held as h on h.id = r.id left join free as f on f.id = r.id
  where r.concurrency is not null and r.concurrency + r.debt <> coalesce(h.units, 0) + coalesce(f.units, 0);
end;

comment on function dibs._wrong_limits is
'Return the limits whose units do not add up, and how many units are missing; below zero if there are too many.';

create or replace function dibs._forget_limits(at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- A parked ticket (it has a kind) waits for no limit.
  perform dibs._unblock_all(b.limit_id, at)
  from (select distinct b.limit_id from dibs.blocked as b where b.kind is null) as b
  where not exists (select from dibs.limit_rule as r where r.id = b.limit_id and r.is_set);
  perform dibs._drop_units(u.limit_id)
  from (select distinct u.limit_id from dibs.limit_unit as u) as u
  where not exists (select from dibs.limit_rule as r where r.id = u.limit_id and r.concurrency is not null);
  -- Delete the rows of rates that are gone, and rows that are not the newest of their rate.
  delete from dibs.limit_rate as p where p.ctid = any (array(
    select o.ctid from dibs.limit_rate as o
    where not exists (select from dibs.limit_rule as r where r.id = o.limit_id and r.rate is not null)
      or exists (select from dibs.limit_rate as n where n.limit_id = o.limit_id and n.n > o.n)
    for update skip locked));
  -- A claim in flight that saw a limit before it was dropped may still block tickets for it. That claim has a
  -- transaction id. So one call notes the next transaction id, and a later call deletes the row when all transactions
  -- below that id have ended.
  delete from dibs.limit_rule as r
  where not r.is_set and r.forget_after <= pg_snapshot_xmin(pg_current_snapshot())
    and not exists (select from dibs.blocked as b where b.limit_id = r.id);
  update dibs.limit_rule as r set forget_after = pg_snapshot_xmax(pg_current_snapshot())
  where not r.is_set and r.forget_after is null;
end
$$;

comment on function dibs._forget_limits is
'Unblock the tickets that wait for dropped limits, and delete the units and rates of these limits. Delete the row of a
limit in a later call, when no claim can know it any more.';

create or replace function dibs.repair_limits() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_wrong integer[] := array(select w.id from dibs._wrong_limits() as w);
  v_mended bigint;
begin
  perform dibs._check_isolation('repair_limits');
  -- Lock the limits, then count again: another repair may be mending them.
  v_wrong := array(
    select r.id from dibs.limit_rule as r where r.id = any (v_wrong) order by r.id for no key update skip locked);
  with wrong as (
    select w.id, w.missing from dibs._wrong_limits() as w where w.id = any (v_wrong)
  ), new_units as (
    insert into dibs.limit_unit (limit_id, units, freed_at)
    select w.id, w.missing, dibs.now() from wrong as w where w.missing > 0 returning 1
  ), new_debts as (
    update dibs.limit_rule as r set debt = r.debt - w.missing
    from wrong as w where w.id = r.id and w.missing < 0 returning 1
  ), new_rates as (
    insert into dibs.limit_rate (limit_id, tat)
    select r.id, dibs.now() from dibs.limit_rule as r
    where r.rate is not null and not exists (select from dibs.limit_rate as p where p.limit_id = r.id) returning 1
  )
  select (select count(*) from new_units) + (select count(*) from new_debts) + (select count(*) from new_rates)
  into v_mended;
  perform dibs._ring_for_limit(w.id) from unnest(v_wrong) as w (id);
  -- Times in the future are left from before the clock was set back. A tat may be one burst ahead.
  update dibs.limit_unit as u set freed_at = dibs.now() where u.freed_at > dibs.now() + interval '500 milliseconds';
  update dibs.limit_rate as p set tat = dibs.now() from dibs.limit_rule as r
  where r.id = p.limit_id and p.tat > dibs.now() + interval '500 milliseconds'
    + dibs._burst(r.rate, r.burst) / r.rate * interval '1 second';
  update dibs.queue as q set has_limit = true where q.id = any (array(
    select o.id from dibs.queue as o
    where not o.has_limit and exists (select from dibs.limit_rule as r where r.is_set and r.of_queue = o.name)
    order by o.id for no key update));
  perform dibs._unblock_limit(r.id, array(select q.id from dibs.queue as q), true, dibs.now())
  from dibs.limit_rule as r where r.of_queue is null;
  perform dibs._forget_limits(dibs.now());
  return v_mended;
end
$$;

comment on function dibs.repair_limits is
'Create missing units of limits, count extra ones as debt, and create missing rows of rates. Unblock tickets that wait
for free units. Return how many corrections were made to units and rates: 0 unless something went wrong.';
