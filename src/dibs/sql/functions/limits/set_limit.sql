-- Limits of queues, kinds and named resources; those of groups are set by set_group.

create or replace function dibs.set_limit(
  queue text default null, kind text default null, resource text default null, concurrency integer default null,
  rate double precision default null, burst integer default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_now timestamptz := dibs.now();
  v_scope text;
  v_name text;
begin
  perform dibs._check_isolation('set_limit');
  perform dibs._check_limit(queue, kind, resource, concurrency, rate, burst);
  v_scope := dibs._scope_of(queue, kind, resource);
  v_name := coalesce(queue, kind, resource);
  perform dibs._begin_change();
  if v_scope = 'queue' then
    perform dibs._ensure_queues(array[v_name]);
    perform dibs._refuse_sharded(v_name, 'limit');
  end if;
  -- A worker sets its tasks' limits each time it starts.
  perform dibs._audit('set_limit', queue, detail => jsonb_build_object('kind', kind, 'resource', resource,
    'concurrency', concurrency, 'rate', rate, 'burst', burst))
  where not exists (
    select from dibs.limit_rule as b
    where b.is_set and b.scope = v_scope and b.name = v_name
      and (b.concurrency, b.rate, b.burst) is not distinct from (set_limit.concurrency, set_limit.rate, set_limit.burst));
  perform dibs._issue_units(
    array_remove(array[dibs._set_limit(v_scope, v_name, concurrency, rate, burst, v_now)], null), v_now);
end
$$;

comment on function dibs.set_limit is
'Limit how many jobs run at once, of a queue, of a kind, or by units of a named resource (`concurrency`), or how many start in a second
(`rate`, with a `burst`, by default one second''s worth); of a resource, how many that name it. Give one of queue, kind and resource. More takes effect at once, less as leases end.
Setting it again replaces both concurrency and rate.';

create or replace function dibs.drop_limit(queue text default null, kind text default null, resource text default null) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_scope text := dibs._scope_of(queue, kind, resource);
begin
  perform dibs._check_isolation('drop_limit');
  perform dibs._check_limit(queue, kind, resource, 1, null, null);
  perform dibs._begin_change();
  if not dibs._drop_limit(v_scope, coalesce(queue, kind, resource), dibs.now()) then
    perform dibs._refuse_unknown('DI030', format('there is no limit of %s %L', v_scope, coalesce(queue, kind, resource)),
      coalesce(queue, kind, resource), array(select b.name from dibs.limit_rule as b where b.is_set and b.scope = v_scope),
      'see the view dibs.limits');
  end if;
  perform dibs._audit('drop_limit', queue, detail => jsonb_build_object('kind', kind, 'resource', resource));
  return true;
end
$$;

comment on function dibs.drop_limit is 'Take a limit away; raises DI030 when there is none. Jobs that waited for it are ready at once.';
