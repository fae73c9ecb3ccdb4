-- Limits of queues, kinds and named resources; those of groups are set by set_group.

create or replace function dibs.set_limit(
  queue text default null, kind text default null, resource text default null, slots integer default null,
  rate double precision default null, burst integer default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
  v_scope text;
  v_name text;
begin
  perform dibs.check_isolation('set_limit');
  perform dibs.check_limit(queue, kind, resource, slots, rate, burst);
  v_scope := case when queue is not null then 'queue' when kind is not null then 'kind' else 'resource' end;
  v_name := coalesce(queue, kind, resource);
  if v_scope = 'queue' then
    perform dibs.ensure_queues(array[v_name]);
    perform dibs.refuse_sharded(v_name, 'limit');
  end if;
  perform dibs.change_bound(v_scope, v_name, slots, rate, burst, dibs.now());
end
$$;

comment on function dibs.set_limit is
'Limit how many jobs run at once, of a queue, of a kind, or by units of a named resource (`slots`), or how many of a queue start in a second
(`rate`, with a `burst`, by default one second''s worth). Give one of queue, kind and resource. More takes effect at once, less as leases end.
Setting it again replaces both slots and rate.';

create or replace function dibs.unset_limit(queue text default null, kind text default null, resource text default null) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_variable
declare
  v_scope text := case when queue is not null then 'queue' when kind is not null then 'kind' else 'resource' end;
  v_id integer;
begin
  perform dibs.check_isolation('unset_limit');
  perform dibs.check_limit(queue, kind, resource, 1, null, null);
  delete from dibs.bound as b where b.scope = v_scope and b.name = coalesce(queue, kind, resource) returning b.id into v_id;
  if v_id is null then
    raise exception using errcode = 'DI030',
      message = format('there is no limit of %s %L', v_scope, coalesce(queue, kind, resource)),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(coalesce(queue, kind, resource),
        array(select b.name from dibs.bound as b where b.scope = v_scope))) || '? ', '') || 'see the view dibs.limits';
  end if;
  -- Who waited for it has nothing to wait for.
  insert into dibs.slot (limit_id, units, freed_at) values (v_id, 1000000000, '-infinity');
  perform dibs.unblock_limit(v_id, -1, '-infinity', '00000000-0000-0000-0000-000000000000', null, dibs.now());
  delete from dibs.slot as s where s.limit_id = v_id;
  delete from dibs.pace as p where p.limit_id = v_id;
  update dibs.queue as q set gated = false where q.name = queue;
  return true;
end
$$;

comment on function dibs.unset_limit is 'Take a limit away; raises DI030 when there is none. Jobs that waited for it are ready at once.';

create or replace function dibs.mend_limits() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_mended bigint;
begin
  perform dibs.check_isolation('mend_limits');
  -- Every transaction that moves a unit keeps their sum, so one statement sees it whole.
  with held as (
    select l.slots[i] as id, sum(l.slots[i + 1]) as units
    from dibs.lease as l cross join lateral generate_series(1, cardinality(l.slots), 2) as i
    where l.slots is not null group by 1
  ), free as (
    select s.limit_id as id, sum(s.units) as units from dibs.slot as s group by 1
  ), wrong as (
    select b.id, b.slots + b.debt - coalesce(h.units, 0) - coalesce(f.units, 0) as missing
    from dibs.bound as b left join held as h on h.id = b.id left join free as f on f.id = b.id
    where b.slots is not null and b.slots + b.debt <> coalesce(h.units, 0) + coalesce(f.units, 0)
  ), mended as (
    insert into dibs.slot (limit_id, units, freed_at) select w.id, w.missing, dibs.now() from wrong as w returning 1
  ), paced as (
    insert into dibs.pace (limit_id, tat)
    select b.id, dibs.now() from dibs.bound as b
    where b.rate is not null and not exists (select from dibs.pace as p where p.limit_id = b.id) returning 1
  )
  select (select count(*) from mended) + (select count(*) from paced) into v_mended;
  -- The clock was stepped back.
  update dibs.slot as s set freed_at = dibs.now() where s.freed_at > dibs.now() + interval '500 milliseconds';
  update dibs.pace as p set tat = dibs.now() from dibs.bound as b
  where b.id = p.limit_id and p.tat > dibs.now() + interval '500 milliseconds'
    + dibs.token_time(b.rate, coalesce(b.burst, dibs.default_burst(b.rate)));
  update dibs.queue as q set checked = true
  where not q.checked and exists (select from dibs.bound as b where b.scope = 'kind');
  update dibs.queue as q set gated = true
  where not q.gated and exists (select from dibs.bound as b where b.scope = 'queue' and b.name = q.name);
  perform dibs.unblock(array(select q.id from dibs.queue as q order by q.id), dibs.now(), array_fill(0::bigint, array[11]));
  return v_mended;
end
$$;

comment on function dibs.mend_limits is
'See that each limit has all its units, free or held, and that nobody waits for one that is free. Returns how many limits it had to mend (none,
unless something went wrong).';
