-- Setting, changing and dropping a limit, whatever its scope.

create or replace function dibs._set_limit(
  of_scope text, of_name text, new_concurrency integer, new_rate double precision, new_burst integer, at timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_old dibs.limit_rule;
  v_id integer;
  v_is_new boolean;
begin
  -- Lock the limit or insert it. If another transaction inserts the same limit first, lock that one.
  while v_id is null loop
    select r.* into v_old from dibs.limit_rule as r
    where r.is_set and r.scope = of_scope and r.name = of_name for update;
    -- A limit that gets or loses a concurrency is replaced.
    v_is_new := v_old.id is null or (v_old.concurrency is null) <> (new_concurrency is null);
    if not v_is_new then
      v_id := v_old.id;
    else
      perform dibs._retire_limit(v_old.id, at) where v_old.id is not null;
      insert into dibs.limit_rule (scope, name, concurrency, rate, burst, declared, declared_rate)
      values (of_scope, of_name, new_concurrency, new_rate, new_burst, v_old.declared, v_old.declared_rate)
      on conflict (scope, name) where is_set do nothing returning id into v_id;
    end if;
  end loop;
  if not v_is_new then
    if new_concurrency is not null then
      perform dibs._change_units(v_id, new_concurrency - v_old.concurrency, at);
    end if;
    update dibs.limit_rule as r set concurrency = new_concurrency, rate = new_rate, burst = new_burst where r.id = v_id;
  end if;
  if v_is_new or new_rate is distinct from v_old.rate then
    -- Start with nothing spent: the tat of a slower rate would hold the new one up.
    perform dibs._drop_rate(v_id);
    insert into dibs.limit_rate (limit_id, tat) select v_id, at where new_rate is not null;
  end if;
  perform dibs._ring_for_limit(v_id);
  return case when v_is_new and new_concurrency is not null then v_id end;
end
$$;

comment on function dibs._set_limit is
'Set a limit or change it. A limit that gets or loses a concurrency is replaced by one with a new id, so that units
held of the old one do not count for the new one. Return the id of a new limit with a concurrency, and null otherwise.
It has no units yet: the caller passes the id to _issue_units.';

create or replace function dibs._issue_units(limits integer[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_limit integer;
begin
  if cardinality(limits) = 0 then
    return;
  end if;
  perform dibs._stop_claims_or_warn();
  -- Lock the leases of all these limits together, sorted by id: with one limit after the other, two transactions that
  -- lock the same leases could deadlock.
  perform dibs._try_lock_leases(array(
    select distinct r.id from unnest(limits) as k (id)
    cross join lateral dibs._runs_without_units(k.id) as r order by r.id));
  foreach v_limit in array limits loop
    -- The lease of a run that is just ending may still be locked. The run gets no units.
    with running as materialized (
      select r.id, r.units from dibs._runs_without_units(v_limit) as r
      cross join lateral (select from dibs.lease as l where l.id = r.id for update skip locked) as l
    )
    update dibs.lease as l set limit_ids = l.limit_ids || v_limit, limit_units = l.limit_units || r.units
    from running as r where l.id = r.id;
    -- The limit has neither free units nor debt yet.
    perform dibs._change_units(r.id, r.concurrency - (
      select coalesce(sum(u.units), 0)::integer
      from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units)
      where u.id = r.id), at)
    from dibs.limit_rule as r where r.id = v_limit;
  end loop;
end
$$;

comment on function dibs._issue_units is
'Create the units of new limits (ids). First give each running job the units that it should hold. The rest of the
concurrency is free; if the running jobs hold more than the concurrency, the excess is debt. Claims wait until this
transaction ends.';

create or replace function dibs._retire_limit(of_limit integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  update dibs.limit_rule as r
  set is_set = false, concurrency = null, rate = null, burst = null, debt = 0, declared = null, declared_rate = null
  where r.id = of_limit;
  perform dibs._drop_units(of_limit), dibs._drop_rate(of_limit), dibs._unblock_all(of_limit, at);
end
$$;

comment on function dibs._retire_limit is
'Take a limit out of use (is_set false), and unblock the tickets that wait for it. The row stays, because a claim in
flight may still block tickets for the limit. The next claim unblocks them, and repair_limits deletes the row later.';

create or replace function dibs._drop_limit(of_scope text, of_name text, at timestamptz) returns boolean
language plpgsql volatile
as $$
declare
  v_id integer;
  v_queue text;
begin
  loop
    select r.id, r.of_queue into v_id, v_queue from dibs.limit_rule as r
    where r.is_set and r.scope = of_scope and r.name = of_name for update;
    exit when found;
    -- Another transaction may have replaced the limit while this one waited for its row. Only a new statement sees the
    -- row that replaced it.
    if not exists (
      select from dibs.limit_rule as r where r.is_set and r.scope = of_scope and r.name = of_name) then
      return false;
    end if;
  end loop;
  perform dibs._ring_for_limit(v_id), dibs._retire_limit(v_id, at);
  update dibs.queue as q set has_limit = false where q.name = v_queue;
  return true;
end
$$;

comment on function dibs._drop_limit is
'Drop a limit. Return false if there is none, also if another transaction has just dropped it.';
