-- Units of limits: taking, returning and creating them. Always: free + held = concurrency + debt.

create or replace function dibs._uncommitted_numbers() returns integer
language sql immutable parallel safe
return 200;

comment on function dibs._uncommitted_numbers is
'Return how many of the last numbers of a sequence may be in use by transactions that have not committed. Hints stop
short of them.';

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
'Return the number (limit_unit.n) from which this connection looks for free units of a limit; 0 to look at all of
them.';

create or replace function dibs._raise_unit_hint(of_limit integer, looked_from bigint, last_n bigint, began bigint)
returns void
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_now bigint := dibs._micros(clock_timestamp());
  v_hint dibs.unit_hint := dibs._recall('units', of_limit)::dibs.unit_hint;
  v_first bigint := (
    select s.n from dibs.limit_unit as s
    where s.limit_id = of_limit and s.n >= looked_from order by s.n limit 1);
begin
  v_hint.n := greatest(looked_from, least(coalesce(v_first, last_n), last_n - dibs._uncommitted_numbers()));
  v_hint.since := began;
  -- Only a look at all units makes the hint good for a while: rows that committed late may lie below it.
  if looked_from = 0 then
    v_hint.until := v_now + greatest(
      dibs._constant('commit_lag_us'), dibs._constant('look_back_cooldown') * (v_now - began));
  end if;
  perform dibs._remember('units', of_limit, v_hint::text);
end
$$;

comment on function dibs._raise_unit_hint is
'Remember the number of the first free unit that is left, after a look from `looked_from` on found too few. The next
look starts there and skips the dead rows before it. last_n: the last number of the sequence when the look began.';

create or replace function dibs._take_units(of_limit integer, want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_got integer;
  v_rows integer;
  v_paid integer;
  v_debt integer := (select r.debt from dibs.limit_rule as r where r.id = of_limit);
  v_began bigint := dibs._micros(clock_timestamp());
  v_from bigint := dibs._unit_hint(of_limit);
  v_last_n bigint := (select s.last_value from dibs.limit_unit_n_seq as s);
begin
  with pick as materialized (
    select s.ctid as spot from dibs.limit_unit as s
    where s.limit_id = of_limit and s.n >= v_from and s.freed_at <= at
    order by s.n desc limit want + v_debt for update skip locked
  ), gone as (
    delete from dibs.limit_unit as s using pick as p where s.ctid = p.spot returning s.units
  )
  select coalesce(sum(g.units), 0), count(*) into v_got, v_rows from gone as g;
  if v_rows < want + v_debt then
    perform dibs._raise_unit_hint(of_limit, v_from, v_last_n, v_began);
  end if;
  if v_got > 0 and v_debt > 0 then
    -- Pay the debt first. If another transaction has the limit's row locked, take nothing: waiting for it could
    -- deadlock.
    update dibs.limit_rule as r set debt = r.debt - least(r.debt, v_got)
    from (
      select r.id, r.debt from dibs.limit_rule as r where r.id = of_limit for no key update skip locked) as o
    where r.id = o.id
    returning o.debt - r.debt into v_paid;
    want := case when v_paid is null then 0 else want end;
    v_got := v_got - coalesce(v_paid, 0);
  end if;
  if v_got > want then
    insert into dibs.limit_unit (limit_id, units, freed_at) values (of_limit, v_got - want, at);
  end if;
  return least(v_got, want);
end
$$;

comment on function dibs._take_units is
'Take up to `want` free units of a limit, after paying its debt: free units destroyed because the limit was lowered.
Return how many were taken.';

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
'Return units to a limit, unless it was dropped. ring: wake the workers that wait for them at the end of the
transaction.';

create or replace function dibs._change_units(of_limit integer, difference integer, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_debt constant integer := (select r.debt from dibs.limit_rule as r where r.id = of_limit);
begin
  if v_debt > 0 or difference < 0 then
    update dibs.limit_rule as r set debt = greatest(v_debt - difference, 0) where r.id = of_limit;
  end if;
  -- In up to 64 rows, so that claims need not wait for each other.
  insert into dibs.limit_unit (limit_id, units, freed_at)
  select of_limit, m.free / m.parts + (i <= m.free % m.parts)::integer, at
  from (select difference - v_debt as free, nullif(least(64, greatest(difference - v_debt, 0)), 0) as parts) as m
  cross join lateral generate_series(1, m.parts) as i;
end
$$;

comment on function dibs._change_units is
'Give a limit more units (`difference` above 0: it pays its debt, the rest is free at once) or fewer (below 0: the debt
grows). The caller has locked the limit''s row.';

create or replace function dibs._drop_units(of_limit integer) returns void
language plpgsql volatile
as $$
begin
  -- Skip units that a claim is taking: it may wait for the limit's row, which this transaction has locked.
  delete from dibs.limit_unit as s
  where s.ctid = any (array(
    select u.ctid from dibs.limit_unit as u where u.limit_id = of_limit for update skip locked));
end
$$;

comment on function dibs._drop_units is
'Delete the free units of a limit, except those that a claim has locked: what it leaves is deleted by repair_limits.';
