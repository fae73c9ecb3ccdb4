-- Free units of limits: batch them, giving them back.

create or replace function dibs._unit_hint(limit_id integer) returns bigint
language plpgsql stable
as $$
declare
  v_floor dibs.unit_hint := dibs._recall('units', limit_id)::dibs.unit_hint;
begin
  return case when dibs._micros(clock_timestamp()) between v_floor.since and v_floor.until then v_floor.n else 0 end;
end
$$;

comment on function dibs._unit_hint is
'From which number on the connection looks for free units of a limit; 0 when it is time to look at all.';

create or replace function dibs._raise_unit_hint(limit_id integer, floor bigint, top bigint, began bigint) returns void
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_now bigint := dibs._micros(clock_timestamp());
  v_floor dibs.unit_hint := dibs._recall('units', limit_id)::dibs.unit_hint;
  v_first bigint := (
    select s.n from dibs.limit_unit as s where s.limit_id = _raise_unit_hint.limit_id and s.n >= floor order by s.n limit 1);
begin
  -- The last numbers may not be committed yet.
  v_floor.n := greatest(floor, least(coalesce(v_first, top), top - 200));
  v_floor.since := began;
  -- Below it may lie what was committed late or rolled back, so now and then it is time to look at all.
  if floor = 0 then
    v_floor.until := v_now + greatest(dibs._commit_lag_us(), dibs._look_back_cooldown(v_now - began));
  end if;
  perform dibs._remember('units', limit_id, v_floor::text);
end
$$;

comment on function dibs._raise_unit_hint is
'Note where the first free unit is, after a look that found all there are: dead rows below it are not read again.';

create or replace function dibs._take_units(limit_id integer, want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_got integer;
  v_rows integer;
  v_paid integer;
  v_debt integer := (select b.debt from dibs.limit_rule as b where b.id = _take_units.limit_id);
  v_began bigint := dibs._micros(clock_timestamp());
  v_floor bigint := dibs._unit_hint(limit_id);
  v_top bigint := (select s.last_value from dibs.limit_unit_n_seq as s);
begin
  with pick as materialized (
    select s.ctid as spot from dibs.limit_unit as s
    where s.limit_id = _take_units.limit_id and s.n >= v_floor and s.freed_at <= at
    order by s.n desc limit want + v_debt for update skip locked
  ), gone as (
    delete from dibs.limit_unit as s using pick as p where s.ctid = p.spot returning s.units
  )
  select coalesce(sum(g.units), 0), count(*) into v_got, v_rows from gone as g;
  if v_rows < want + v_debt then
    perform dibs._raise_unit_hint(limit_id, v_floor, v_top, v_began);
  end if;
  if v_got > 0 and v_debt > 0 then
    -- The limit was lowered: units that come back pay for it first. While another transaction pays or sets the limit, take none: to wait
    -- for it could end in a deadlock.
    update dibs.limit_rule as b set debt = b.debt - least(b.debt, v_got)
    from (select b.id, b.debt from dibs.limit_rule as b where b.id = _take_units.limit_id for no key update skip locked) as o
    where b.id = o.id
    returning o.debt - b.debt into v_paid;
    want := case when v_paid is null then 0 else want end;
    v_got := v_got - coalesce(v_paid, 0);
  end if;
  if v_got > want then
    insert into dibs.limit_unit (limit_id, units, freed_at) values (_take_units.limit_id, v_got - want, at);
  end if;
  return least(v_got, want);
end
$$;

comment on function dibs._take_units is 'Take up to `want` free units of a limit; how many it got.';

create or replace function dibs._return_units(limit_id integer, units integer, at timestamptz, ring boolean default false) returns void
language sql volatile
begin atomic
  insert into dibs.limit_unit (limit_id, units, freed_at, ring)
  select b.id, units, at, ring from dibs.limit_rule as b where b.id = _return_units.limit_id and b.concurrency is not null and units <> 0;
end;

comment on function dibs._return_units is 'Give units back to a limit, if it is still there.';

create or replace function dibs._drop_units(of_limit integer) returns void
language plpgsql volatile
as $$
begin
  -- Not those that a claim is batch: it may wait for the limit's row, which is ours.
  delete from dibs.limit_unit as s
  where s.ctid = any (array(select u.ctid from dibs.limit_unit as u where u.limit_id = of_limit for update skip locked));
end
$$;

comment on function dibs._drop_units is 'Take the free units of a limit away; what a claim brings back later is collected by repair_limits.';
