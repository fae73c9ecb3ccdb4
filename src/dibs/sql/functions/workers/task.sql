-- The registry of tasks: written by workers when they start, read by producers that have not their code.

create or replace function dibs.set_tasks(tasks jsonb) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count integer;
begin
  perform dibs._check_tasks(tasks);
  -- Wait for others that move the same kinds, so that the next statement finds each kind where they put it.
  perform from dibs.task as t
  where exists (
    select from jsonb_to_recordset(tasks) as n (kind text, queue text)
    where n.kind = t.kind and n.queue <> t.queue and dibs._may_see_queue(n.queue) and dibs._may_see_queue(t.queue))
  order by t.kind, t.queue for update;
  with asked as materialized (
    select n.kind, n.queue, coalesce(nullif(n.arguments, 'null'), '[]') as arguments,
      coalesce(nullif(n.options, 'null'), '{}') as options
    from jsonb_to_recordset(tasks) as n (kind text, queue text, arguments jsonb, options jsonb) where dibs._may_see_queue(n.queue)
  ), moved as (
    delete from dibs.task as t using asked as a
    where t.kind = a.kind and t.queue <> a.queue and dibs._may_see_queue(t.queue) returning t.kind, t.first_at
  )
  insert into dibs.task as t (kind, queue, arguments, options, first_at, set_at)
  select a.kind, a.queue, a.arguments, a.options,
    coalesce((select min(m.first_at) from moved as m where m.kind = a.kind), n.at), n.at
  from asked as a cross join (select dibs.now() as at) as n
  order by a.kind
  on conflict (kind, queue) do update
  set arguments = excluded.arguments, options = excluded.options, set_at = excluded.set_at
  where (t.arguments, t.options) is distinct from (excluded.arguments, excluded.options);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function dibs.set_tasks is
'Worker protocol: register what a worker runs: a JSON array of {kind, queue, arguments, options}. A kind is moved to another queue only by those who
may use both; tasks of queues that the caller may not use are left out. Returns how many were new or changed.';

create or replace function dibs.find_task(kind text)
returns table (queue text, arguments jsonb, options jsonb)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select t.queue, t.arguments, t.options from dibs.task as t
  where t.kind = find_task.kind and dibs._may_see_queue(t.queue) order by t.first_at, t.queue limit 1;
  if not found then
    perform dibs._refuse_unknown('DI015', format('no worker has registered a task %L', find_task.kind), find_task.kind,
      array(select t.kind from dibs.task as t where dibs._may_see_queue(t.queue)), 'a worker registers its tasks when it starts');
  end if;
end
$$;

comment on function dibs.find_task is
'Worker protocol: what is known of a task: its queue, its arguments and the options its jobs get. Raises DI015 when no worker registered
it.';
