-- The registry of tasks: written by workers when they start, read by producers that have not their code.

create or replace function dibs.set_tasks(tasks jsonb) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count integer;
begin
  perform dibs._check_tasks(tasks);
  insert into dibs.task as t (kind, queue, arguments, options, set_at)
  select n.kind, n.queue, coalesce(nullif(n.arguments, 'null'), '[]'), coalesce(nullif(n.options, 'null'), '{}'), dibs.now()
  from jsonb_to_recordset(tasks) as n (kind text, queue text, arguments jsonb, options jsonb)
  order by n.kind
  on conflict (kind) do update
  set queue = excluded.queue, arguments = excluded.arguments, options = excluded.options, set_at = excluded.set_at
  where (t.queue, t.arguments, t.options) is distinct from (excluded.queue, excluded.arguments, excluded.options);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function dibs.set_tasks is
'Register what a worker runs: a JSON array of {kind, queue, arguments, options}. Returns how many were new or changed.';

create or replace function dibs.find_task(kind text)
returns table (queue text, arguments jsonb, options jsonb)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select t.queue, t.arguments, t.options from dibs.task as t where t.kind = find_task.kind;
  if not found then
    perform dibs._refuse_unknown('DI015', format('no worker has registered a task %L', find_task.kind), find_task.kind,
      array(select t.kind from dibs.task as t), 'a worker registers its tasks when it starts');
  end if;
end
$$;

comment on function dibs.find_task is
'What is known of a task: its queue, its arguments and the options its jobs get. Raises DI015 when no worker registered
it.';
