-- How limits are set and changed.

create or replace function dibs._scope_of(queue text, kind text, resource text) returns text
language sql immutable
return case when queue is not null then 'queue' when kind is not null then 'kind' when resource is not null then 'resource' end;

comment on function dibs._scope_of is 'What a limit is of.';

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
      hint = 'to take a limit away use dibs.unset_limit';
  end if;
  if burst is not null and rate is null then
    raise exception using errcode = 'DI010', message = 'a burst belongs to a rate, and there is none';
  end if;
end
$$;

comment on function dibs._check_limit is 'Refuse a limit that makes no sense, with a sentence that says why.';

create or replace function dibs._change_limit(
  of_scope text, of_name text, new_concurrency integer, new_rate double precision, new_burst integer, at timestamptz)
returns void
language plpgsql volatile
as $$
declare
  v_old dibs.limit_rule;
  v_is_new boolean;
  v_more integer;
begin
  if new_concurrency is not null and not exists (
    select from dibs.limit_rule as b where b.scope = of_scope and b.name = of_name and b.concurrency is not null) then
    perform dibs._wait_for_claims();
  end if;
  insert into dibs.limit_rule (scope, name, concurrency, rate, burst) values (of_scope, of_name, new_concurrency, new_rate, new_burst)
  on conflict (scope, name) do nothing;
  v_is_new := found;
  select b.* into v_old from dibs.limit_rule as b where b.scope = of_scope and b.name = of_name for update;
  update dibs.limit_rule as b set concurrency = new_concurrency, rate = new_rate, burst = new_burst where b.id = v_old.id;
  if new_concurrency is null then
    perform dibs._drop_units(v_old.id);
    update dibs.limit_rule as b set debt = 0 where b.id = v_old.id;
  else
    v_more := new_concurrency - case when v_is_new or v_old.concurrency is null then dibs._count_running(v_old.id) else v_old.concurrency end;
    update dibs.limit_rule as b
    set debt = case when v_more < 0 then b.debt - v_more else b.debt - least(b.debt, v_more) end where b.id = v_old.id;
    -- In several rows, so that claimers need not wait for each other.
    insert into dibs.limit_unit (limit_id, units, freed_at)
    select v_old.id, p.units / nullif(p.parts, 0) + (i <= p.units % nullif(p.parts, 0))::integer, at
    from (select least(64, u.units) as parts, u.units
          from (select greatest(0, v_more - least(v_old.debt, v_more)) as units) as u) as p
    cross join lateral generate_series(1, p.parts) as i;
  end if;
  if new_rate is null then
    delete from dibs.limit_rate as p where p.limit_id = v_old.id;
  elsif not exists (select from dibs.limit_rate as p where p.limit_id = v_old.id) then
    insert into dibs.limit_rate (limit_id, tat) values (v_old.id, at);
  end if;
  update dibs.queue as q set has_limit = q.has_limit or of_scope = 'queue', has_job_limits = q.has_job_limits or of_scope = 'kind'
  where of_scope = 'queue' and q.name = of_name and not q.has_limit or of_scope = 'kind' and not q.has_job_limits;
  perform dibs._ring_for(v_old.id);
end
$$;

comment on function dibs._change_limit is 'Set a limit or change it: more units are free at once, fewer are owed.';

create or replace function dibs._runs_of(of_limit integer) returns table (id uuid, units integer)
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

comment on function dibs._runs_of is 'The jobs that run, are meant by a limit and hold no units of it, and how many each should hold.';

create or replace function dibs._count_running(of_limit integer) returns integer
language plpgsql volatile
as $$
begin
  perform dibs._wait_for_leases(array(select r.id from dibs._runs_of(of_limit) as r));
  -- Those that run already count from now on; one that is ending at this moment is let go.
  with running as materialized (
    select r.id, r.units from dibs._runs_of(of_limit) as r
    cross join lateral (select from dibs.lease as l where l.id = r.id for update skip locked) as l
  )
  update dibs.lease as l set limit_ids = l.limit_ids || of_limit, limit_units = l.limit_units || r.units
  from running as r where l.id = r.id;
  return (
    select coalesce(sum(u.units), 0) from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units)
    where u.id = of_limit);
end
$$;

comment on function dibs._count_running is 'Let the jobs that run already hold units of a limit that is new; how many are held.';
