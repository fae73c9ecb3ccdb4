-- set_limit and drop_limit: limits of queues, kinds and named resources. set_group limits groups.

create or replace function dibs.set_limit(
  queue text default null, kind text default null, resource text default null, concurrency integer default null,
  rate double precision default null, burst integer default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_now constant timestamptz := dibs.now();
  v_scope text;
  v_name constant text := coalesce(queue, kind, resource);
  v_to_issue integer;
begin
  perform dibs._check_isolation('set_limit');
  v_scope := dibs._scope_of(queue, kind, resource);
  if concurrency is null and rate is null then
    raise exception using errcode = 'DI010', message = 'a limit needs a concurrency, a rate, or both',
      hint = 'to take a limit away use dibs.drop_limit';
  end if;
  if burst is not null and rate is null then
    raise exception using errcode = 'DI010', message = 'a burst belongs to a rate, and there is none';
  end if;
  perform dibs._begin_change();
  if queue is not null then
    perform dibs._ensure_queues(array[queue]);
    perform dibs._refuse_sharded(queue, 'limit');
    -- Do this before _issue_units stops the claims: a producer may have the queue's row locked for a while.
    update dibs.queue as q set has_limit = true where q.name = queue and not q.has_limit;
  end if;
  -- Log only a change: a program may set the same limit each time it starts.
  perform dibs._audit('set_limit', queue, detail => jsonb_build_object('kind', kind, 'resource', resource,
    'concurrency', concurrency, 'rate', rate, 'burst', burst))
  where not exists (
    select from dibs.limit_rule as r
    where r.is_set and r.scope = v_scope and r.name = v_name
      and (r.concurrency, r.rate, r.burst) is not distinct from
        (set_limit.concurrency, set_limit.rate, set_limit.burst));
  v_to_issue := dibs._set_limit(v_scope, v_name, concurrency, rate, burst, v_now);
  if v_to_issue is not null then
    perform dibs._issue_units(array[v_to_issue], v_now);
  end if;
end
$$;

comment on function dibs.set_limit is
'Limit the jobs of a queue, the jobs of a kind, or the jobs that name a resource: give exactly one of these three
arguments. `concurrency`: how many run at
once; of a resource, how many units they hold together. `rate`: how many start per second; `burst`: how many may start
at once after a pause (default: one second''s worth). A higher limit takes effect at once, a lower one as runs end.
Setting a limit again replaces both its concurrency and its rate.';

create or replace function dibs.drop_limit(queue text default null, kind text default null, resource text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_scope text;
  v_name constant text := coalesce(queue, kind, resource);
begin
  perform dibs._check_isolation('drop_limit');
  v_scope := dibs._scope_of(queue, kind, resource);
  perform dibs._begin_change();
  if not dibs._drop_limit(v_scope, v_name, dibs.now()) then
    perform dibs._refuse_unknown('DI030', format('there is no limit of %s %L', v_scope, v_name), v_name,
      array(select r.name from dibs.limit_rule as r where r.is_set and r.scope = v_scope), 'see the view dibs.limits');
  end if;
  perform dibs._audit('drop_limit', queue, detail => jsonb_build_object('kind', kind, 'resource', resource));
  return true;
end
$$;

comment on function dibs.drop_limit is
'Drop a limit; raise DI030 if there is none. Jobs that wait for it are ready at once.';
