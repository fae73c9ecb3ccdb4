-- Units of limits: taking, returning, creating and destroying them. Always: free + held = concurrency + debt.

create or replace function dibs._unit_hint(of_limit integer) returns bigint
language plpgsql stable
as $$
declare
  v_hint dibs.unit_hint := dibs._recall('units', of_limit)::dibs.unit_hint;
begin
  return case when dibs._micros(clock_timestamp()) between v_hint.since and v_hint.until then v_hint.n else 0 end;
end
$$;

comment on function dibs._unit_hint is
'Return the lowest number (limit_unit.n) at which this connection looks for free units of a limit: the n of its hint
(see the type unit_hint; _take_units makes it), or 0 if it has no hint that is still valid.';

create or replace function dibs._take_units(of_limit integer, want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_debt integer := (select r.debt from dibs.limit_rule as r where r.id = of_limit);
  v_began bigint := dibs._micros(clock_timestamp());
  v_last_n bigint := (select q.last_value from dibs.limit_unit_n_seq as q);
  v_from bigint := dibs._unit_hint(of_limit);
  v_hint dibs.unit_hint;
  v_now bigint;
  v_rows integer;
  v_units integer;
  v_paid integer;
begin
  -- Lock as many rows as there are units wanted, since a row has at least one. The newest come first in the index, and
  -- the dead rows of units taken earlier come last. Take the first rows that have enough together; the others stay, so
  -- that later claims find many rows and need not wait for each other.
  with locked as materialized (
    select u.ctid as spot, u.units from dibs.limit_unit as u
    where u.limit_id = of_limit and u.n >= v_from and u.freed_at <= at
    order by u.n desc limit want + v_debt for update skip locked
  ), pick as materialized (
    select l.spot
    from (select l.spot, l.units, sum(l.units) over (rows unbounded preceding) as total from locked as l) as l
    where l.total - l.units < want + v_debt
  ), gone as (
    delete from dibs.limit_unit as u using pick as p where u.ctid = p.spot returning u.units
  )
  select coalesce(sum(g.units), 0), (select count(*) from locked) into v_units, v_rows from gone as g;
  if v_rows < want + v_debt then
    -- There were fewer rows than that, so this claim walked over all from v_from on, and over all dead ones. Remember
    -- the number of the first row that is left, so that the next claim stops there.
    v_hint := dibs._recall('units', of_limit)::dibs.unit_hint;
    v_hint.n := greatest(v_from, least(v_last_n - dibs._constant('uncommitted_numbers'), (
      select u.n from dibs.limit_unit as u where u.limit_id = of_limit and u.n >= v_from order by u.n limit 1)));
    v_hint.since := v_began;
    if v_from = 0 then
      -- The hint is believed for a while after a walk over all rows. Then a claim walks over all of them again, and
      -- finds rows below the hint that were committed late.
      v_now := dibs._micros(clock_timestamp());
      v_hint.until := v_now
        + greatest(dibs._constant('commit_lag_us'), dibs._constant('look_back_cooldown') * (v_now - v_began));
    end if;
    perform dibs._remember('units', of_limit, v_hint::text);
  end if;
  if v_units > 0 and v_debt > 0 then
    -- Pay the debt first. If another transaction has the limit's row locked, take nothing and put the units back:
    -- waiting for it could deadlock.
    update dibs.limit_rule as r set debt = r.debt - least(r.debt, v_units)
    from (
      select r.id, r.debt from dibs.limit_rule as r where r.id = of_limit for no key update skip locked) as o
    where r.id = o.id
    returning o.debt - r.debt into v_paid;
    want := case when v_paid is null then 0 else want end;
    v_units := v_units - coalesce(v_paid, 0);
  end if;
  if v_units > want then
    insert into dibs.limit_unit (limit_id, units, freed_at) values (of_limit, v_units - want, at);
  end if;
  return least(v_units, want);
end
$$;

comment on function dibs._take_units is
'Take up to `want` free units of a limit, and return how many. If the limit has a debt, destroy as many free units
first.';

create or replace function dibs._return_units(
  of_limit integer, units integer, at timestamptz, ring boolean default false)
returns void
language sql volatile
begin atomic
  insert into dibs.limit_unit (limit_id, units, freed_at, ring)
  select r.id, units, at, ring from dibs.limit_rule as r
  where r.id = of_limit and r.concurrency is not null and units > 0;
end;

comment on function dibs._return_units is
'Return units to a limit. Do nothing for a limit without a concurrency, such as one that was dropped. `ring`: wake
workers for the jobs that wait for units, when the transaction commits.';

create or replace function dibs._change_units(of_limit integer, difference integer, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_debt constant integer := (select r.debt from dibs.limit_rule as r where r.id = of_limit);
  v_free constant integer := difference - v_debt;
  v_rows constant integer := least(v_free, 64);
begin
  if v_debt > 0 or difference < 0 then
    update dibs.limit_rule as r set debt = greatest(-v_free, 0) where r.id = of_limit;
  end if;
  if v_free > 0 then
    -- Spread the units over up to 64 rows, so that several claims can take units at a time: they skip locked rows.
    insert into dibs.limit_unit (limit_id, units, freed_at)
    select of_limit, v_free / v_rows + (i <= v_free % v_rows)::integer, at from generate_series(1, v_rows) as i;
  end if;
end
$$;

comment on function dibs._change_units is
'Give a limit more units, or fewer if `difference` is below 0. More units first pay its debt, and the rest is free at
once; fewer units add to the debt. The caller has locked the limit''s row.';

create or replace function dibs._drop_units(of_limit integer) returns void
language plpgsql volatile
as $$
begin
  -- Skip units that a claim is taking. Waiting for that claim could deadlock, because this transaction has the limit's
  -- row locked.
  delete from dibs.limit_unit as s
  where s.ctid = any (array(
    select u.ctid from dibs.limit_unit as u where u.limit_id = of_limit for update skip locked));
end
$$;

comment on function dibs._drop_units is
'Delete the free units of a limit. Skip units that a claim has locked; repair_limits deletes those that are left.';
