-- The registry of tasks. Workers write it when they start; producers without the code of a task read it.

create or replace function dibs.set_tasks(tasks jsonb) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count integer;
begin
  perform dibs._check_tasks(tasks);
  -- Lock the rows that the next statement deletes, so that it sees where a concurrent call has put these kinds.
  perform from dibs.task as t
  where exists (
    select from jsonb_to_recordset(tasks) as n (kind text, queue text)
    where n.kind = t.kind and n.queue <> t.queue and dibs._may_see_queue(n.queue) and dibs._may_see_queue(t.queue))
  order by t.kind, t.queue for update;
  with registered as materialized (
    select n.kind, n.queue, coalesce(nullif(n.arguments, 'null'), '[]') as arguments,
      coalesce(nullif(n.options, 'null'), '{}') as options
    from jsonb_to_recordset(tasks) as n (kind text, queue text, arguments jsonb, options jsonb)
    where dibs._may_see_queue(n.queue)
  ), moved as (
    -- A row of a queue that the caller may not use stays. Its first_at is earlier, so find_task goes on to return it.
    delete from dibs.task as t using registered as r
    where t.kind = r.kind and t.queue <> r.queue and dibs._may_see_queue(t.queue) returning t.kind, t.first_at
  )
  insert into dibs.task as t (kind, queue, arguments, options, first_at, set_at)
  select r.kind, r.queue, r.arguments, r.options,
    coalesce((select min(m.first_at) from moved as m where m.kind = r.kind), n.at), n.at
  from registered as r cross join (select dibs.now() as at) as n
  order by r.kind
  on conflict (kind, queue) do update
  set arguments = excluded.arguments, options = excluded.options, set_at = excluded.set_at
  where (t.arguments, t.options) is distinct from (excluded.arguments, excluded.options);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function dibs.set_tasks is
'Worker protocol: register the tasks that a worker runs, as a JSON array of {kind, queue, arguments, options}. A kind
moves to another queue only if the caller may use both; tasks of queues that the caller may not use are left out.
Returns how many were new or changed.';

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
      array(select t.kind from dibs.task as t where dibs._may_see_queue(t.queue)),
      'a worker registers its tasks when it starts');
  end if;
end
$$;

comment on function dibs.find_task is
'Worker protocol: find a registered task: its queue, its arguments and the options of its jobs. Raises DI015 if no
worker has registered it.';
