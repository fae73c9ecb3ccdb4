-- How limits are set and changed. Nobody but the owner calls these.

create or replace function dibs.check_limit(
  queue text, kind text, resource text, slots integer, rate double precision, burst integer) returns void
language plpgsql immutable
as $$
begin
  if num_nonnulls(queue, kind, resource) <> 1 then
    raise exception using errcode = 'DI010', message = 'a limit is of one thing: a queue, a kind or a resource',
      hint = 'such as: select dibs.set_limit(kind => ''render'', slots => 4); for a group use dibs.set_group';
  end if;
  if slots is null and rate is null then
    raise exception using errcode = 'DI010', message = 'a limit needs slots, a rate, or both',
      hint = 'to take a limit away use dibs.unset_limit';
  end if;
  if rate is not null and queue is null then
    raise exception using errcode = 'DI010', message = 'only a queue or a group has a rate, not a kind or a resource',
      hint = 'give the kind a queue of its own, or use slots';
  end if;
  if burst is not null and rate is null then
    raise exception using errcode = 'DI010', message = 'a burst belongs to a rate, and there is none';
  end if;
end
$$;

comment on function dibs.check_limit is 'Refuse a limit that makes no sense, with a sentence that says why.';

create or replace function dibs.change_bound(
  of_scope text, of_name text, new_slots integer, new_rate double precision, new_burst integer, at timestamptz)
returns void
language plpgsql volatile
as $$
declare
  v_old dibs.bound;
  v_more integer;
begin
  insert into dibs.bound (scope, name, slots, rate, burst) values (of_scope, of_name, new_slots, new_rate, new_burst)
  on conflict (scope, name) do nothing;
  select b.* into v_old from dibs.bound as b where b.scope = of_scope and b.name = of_name for update;
  if not exists (select from dibs.slot as s where s.limit_id = v_old.id)
    and not exists (select from dibs.lease as l where v_old.id = any (l.slots)) then
    v_old.slots := null;
  end if;
  update dibs.bound as b set slots = new_slots, rate = new_rate, burst = new_burst where b.id = v_old.id;
  if new_slots is null then
    delete from dibs.slot as s where s.limit_id = v_old.id;
    update dibs.bound as b set debt = 0 where b.id = v_old.id;
  else
    v_more := new_slots - case when v_old.slots is null then dibs.count_running(v_old.id) else v_old.slots end;
    update dibs.bound as b
    set debt = case when v_more < 0 then b.debt - v_more else b.debt - least(b.debt, v_more) end where b.id = v_old.id;
    -- In several rows, so that claimers need not wait for each other.
    insert into dibs.slot (limit_id, units, freed_at)
    select v_old.id, p.units / nullif(p.parts, 0) + (i <= p.units % nullif(p.parts, 0))::integer, at
    from (select least(64, u.units) as parts, u.units
          from (select greatest(0, v_more - least(v_old.debt, v_more)) as units) as u) as p
    cross join lateral generate_series(1, p.parts) as i;
  end if;
  if new_rate is null then
    delete from dibs.pace as p where p.limit_id = v_old.id;
  elsif not exists (select from dibs.pace as p where p.limit_id = v_old.id) then
    insert into dibs.pace (limit_id, tat) values (v_old.id, at);
  end if;
  update dibs.queue as q set gated = q.gated or of_scope = 'queue', checked = q.checked or of_scope = 'kind'
  where of_scope = 'queue' and q.name = of_name and not q.gated or of_scope = 'kind' and not q.checked;
  perform dibs.ring_for(v_old.id);
end
$$;

comment on function dibs.change_bound is 'Set a limit or change it: more units are free at once, fewer are owed.';

create or replace function dibs.count_running(of_limit integer) returns integer
language plpgsql volatile
as $$
declare
  v_units integer;
begin
  -- Those that run already count from now on; one that is ending just now is let go.
  with running as materialized (
    select l.id, case b.scope when 'resource' then (j.resources ->> b.name)::integer else 1 end as units
    from dibs.bound as b
    cross join dibs.lease as l
    join dibs.queue as q on q.id = l.queue_id
    join dibs.job as j on j.id = l.id
    where b.id = of_limit and not coalesce(of_limit = any (l.slots), false) and case b.scope
      when 'queue' then q.name = b.name when 'kind' then j.kind = b.name else j.resources ? b.name end
    for update of l skip locked
  ), counted as (
    update dibs.lease as l set slots = coalesce(l.slots, '{}') || array[of_limit, r.units]
    from running as r where l.id = r.id returning r.units
  )
  select coalesce(sum(c.units), 0) into v_units from counted as c;
  return v_units;
end
$$;

comment on function dibs.count_running is 'Let the jobs that run already hold units of a limit that is new; how many.';
