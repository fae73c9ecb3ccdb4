-- How limits are set and changed.

create or replace function dibs._scope_of(queue text, kind text, resource text) returns text
language sql immutable
return case when queue is not null then 'queue' when kind is not null then 'kind' when resource is not null then 'resource' end;

comment on function dibs._scope_of is 'Which kind of thing a limit is of: a queue, a kind or a resource.';

create or replace function dibs._check_limit(
  queue text, kind text, resource text, concurrency integer, rate double precision, burst integer) returns void
language plpgsql immutable
as $$
begin
  if num_nonnulls(queue, kind, resource) <> 1 then
    raise exception using errcode = 'DI010', message = 'a limit is of one thing: a queue, a kind or a resource',
      hint = 'such as: select dibs.set_limit(kind => ''render'', concurrency => 4); for a group use dibs.set_group';
  end if;
  if concurrency is null and rate is null then
    raise exception using errcode = 'DI010', message = 'a limit needs a concurrency, a rate, or both',
      hint = 'to take a limit away use dibs.drop_limit';
  end if;
  if burst is not null and rate is null then
    raise exception using errcode = 'DI010', message = 'a burst belongs to a rate, and there is none';
  end if;
end
$$;

comment on function dibs._check_limit is 'Refuse a limit that makes no sense, with a sentence that says why.';

create or replace function dibs._set_limit(
  of_scope text, of_name text, new_concurrency integer, new_rate double precision, new_burst integer, at timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_old dibs.limit_rule;
  v_id integer;
begin
  -- Before claims have to wait for us: the row of a queue may be locked by a producer.
  update dibs.queue as q set has_limit = true where of_scope = 'queue' and q.name = of_name and not q.has_limit;
  -- Another transaction may set the same limit for the first time, or unset it, so look again after a wait for it.
  loop
    select b.* into v_old from dibs.limit_rule as b where b.is_set and b.scope = of_scope and b.name = of_name for update;
    v_id := v_old.id;
    exit when (v_old.concurrency is null) = (new_concurrency is null) and v_id is not null;
    if v_id is not null then
      perform dibs._retire_limit(v_id, at);
    end if;
    insert into dibs.limit_rule (scope, name, concurrency, rate, burst, declared, declared_rate)
    values (of_scope, of_name, new_concurrency, new_rate, new_burst, v_old.declared, v_old.declared_rate)
    on conflict (scope, name) where is_set do nothing returning id into v_id;
    exit when v_id is not null;
  end loop;
  if v_id is distinct from v_old.id then
    v_old.rate := null;
  else
    perform dibs._adjust_units(v_old, new_concurrency - v_old.concurrency, at) where new_concurrency is not null;
    update dibs.limit_rule as b set concurrency = new_concurrency, rate = new_rate, burst = new_burst where b.id = v_id;
  end if;
  if new_rate is distinct from v_old.rate then
    perform case when new_rate is null then dibs._drop_rate(v_id) else dibs._start_rate(v_id, at) end;
  end if;
  perform dibs._ring_for_limit(v_id);
  return case when new_concurrency is not null and v_id is distinct from v_old.id then v_id end;
end
$$;

comment on function dibs._set_limit is
'Set a limit or change it. One that gets or loses a concurrency is a new one, so that units which are still held cannot be mistaken for its own.
Returns the number of a new limit that has a concurrency: `_issue_units` must give it its units.';

create or replace function dibs._issue_units(limits integer[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  if cardinality(limits) = 0 then
    return;
  end if;
  perform dibs._wait_for_claims();
  -- Leases of all limits at once: a transaction that holds those of one limit must never wait for those of another.
  perform dibs._wait_for_leases(array(
    select distinct r.id from unnest(limits) as k (id) cross join lateral dibs._runs_without_units(k.id) as r order by r.id));
  perform dibs._add_units(b.id, b.concurrency - dibs._count_running(b.id), at)
  from dibs.limit_rule as b where b.id = any (limits);
end
$$;

comment on function dibs._issue_units is
'Let jobs that already run hold units of new limits, and make the units that are left. Claims wait until this transaction ends.';

create or replace function dibs._add_units(of_limit integer, more integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  update dibs.limit_rule as b set debt = b.debt - more where b.id = of_limit and more < 0;
  -- In several rows, so that claimers need not wait for each other.
  insert into dibs.limit_unit (limit_id, units, freed_at)
  select of_limit, more / p.parts + (i <= more % p.parts)::integer, at
  from (select nullif(least(64, greatest(more, 0)), 0) as parts) as p cross join lateral generate_series(1, p.parts) as i;
end
$$;

comment on function dibs._add_units is 'Let a limit have more free units; fewer are owed as debt, which claims pay.';

create or replace function dibs._adjust_units(old dibs.limit_rule, more integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  update dibs.limit_rule as b set debt = b.debt - least(b.debt, more) where b.id = old.id and more > 0 and b.debt > 0;
  perform dibs._add_units(old.id, more - least(old.debt, greatest(more, 0)), at);
end
$$;

comment on function dibs._adjust_units is
'Change a limit that has units: raising it pays its debt first and frees the rest, lowering it adds to its debt.';

create or replace function dibs._retire_limit(of_limit integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  update dibs.limit_rule as b
  set is_set = false, concurrency = null, rate = null, burst = null, debt = 0, declared = null, declared_rate = null
  where b.id = of_limit;
  perform dibs._drop_units(of_limit), dibs._drop_rate(of_limit), dibs._unblock_all(of_limit, at);
end
$$;

comment on function dibs._retire_limit is
'Take a limit out of use: jobs that wait for it are ready. The row stays for those that a claim lets wait at this moment; the next claim brings
them back, and repair_limits deletes it when nothing waits for it.';

create or replace function dibs._drop_limit(of_scope text, of_name text, at timestamptz) returns boolean
language plpgsql volatile
as $$
declare
  v_id integer;
begin
  -- Another transaction may put a new limit in its place while this one waits, so look again.
  while v_id is null loop
    select b.id into v_id from dibs.limit_rule as b where b.is_set and b.scope = of_scope and b.name = of_name for update;
    if v_id is null and not exists (
      select from dibs.limit_rule as b where b.is_set and b.scope = of_scope and b.name = of_name) then
      return false;
    end if;
  end loop;
  perform dibs._retire_limit(v_id, at);
  update dibs.queue as q set has_limit = false where of_scope = 'queue' and q.name = of_name;
  return true;
end
$$;

comment on function dibs._drop_limit is 'Take a limit away; false if it is not set, also when another transaction has just taken it away.';

create or replace function dibs._runs_without_units(of_limit integer) returns table (id uuid, units integer)
language sql stable
begin atomic
  select l.id, case b.scope when 'resource' then (j.resources -> b.name)::integer else 1 end
  from dibs.limit_rule as b
  cross join dibs.lease as l
  join dibs.queue as q on q.id = l.queue_id
  join dibs.job as j on j.id = l.id
  where b.id = of_limit and not coalesce(of_limit = any (l.limit_ids), false) and case b.scope
    when 'queue' then q.name = b.name when 'kind' then j.kind = b.name else j.resources ? b.name end
  order by l.id;
end;

comment on function dibs._runs_without_units is 'The jobs that run, are meant by a limit and hold no units of it, and how many each should hold.';

create or replace function dibs._count_running(of_limit integer) returns integer
language plpgsql volatile
as $$
begin
  -- A run that is ending at this moment has its lease locked, and is not counted.
  with running as materialized (
    select r.id, r.units from dibs._runs_without_units(of_limit) as r
    cross join lateral (select from dibs.lease as l where l.id = r.id for update skip locked) as l
  )
  update dibs.lease as l set limit_ids = l.limit_ids || of_limit, limit_units = l.limit_units || r.units
  from running as r where l.id = r.id;
  return (
    select coalesce(sum(u.units), 0) from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units)
    where u.id = of_limit);
end
$$;

comment on function dibs._count_running is 'Let the jobs that run already hold units of a limit that is new; how many are held. Wait for their leases first.';
