-- Check what workers report.

create or replace function dibs._check_facts(facts jsonb) returns void
language plpgsql stable
as $$
begin
  if jsonb_typeof(facts) <> 'object' then
    raise exception using errcode = 'DI010',
      message = format('facts are a JSON object, not a JSON %s', jsonb_typeof(facts)),
      hint = 'such as: {"host": "web-1", "pid": 4711}';
  end if;
  perform dibs._check_json('facts', facts, 'facts');
end
$$;

comment on function dibs._check_facts is
'Raise DI010 unless the facts of a worker are null, or a JSON object that is not too large.';

create or replace function dibs._check_kinds(kinds text[]) returns void
language plpgsql stable
as $$
begin
  perform dibs._check_items('a worker', kinds, 'names');
  perform dibs._check_name('a kind that a worker runs', k) from unnest(kinds) as k;
end
$$;

comment on function dibs._check_kinds is 'Raise DI010 if the kinds of a worker are too many, or one is not a name.';

create or replace function dibs._check_tasks(tasks jsonb) returns void
language plpgsql stable
as $$
declare
  v_task record;
begin
  if coalesce(jsonb_typeof(tasks), 'null') <> 'array' or exists (
    select from jsonb_array_elements(tasks) as t where jsonb_typeof(t) <> 'object') then
    raise exception using errcode = 'DI010', message = 'set_tasks takes a JSON array of tasks',
      hint = 'pass [{"kind": "welcome", "queue": "mail", "arguments": [{"name": "user", "required": true}]}, …]';
  end if;
  perform dibs._check_items('set_tasks', array(select t ->> 'kind' from jsonb_array_elements(tasks) as t), 'names');
  for v_task in
    select t.task, t.task ->> 'kind' as kind, count(*) over (partition by t.task ->> 'kind') as times
    from jsonb_array_elements(tasks) as t (task)
  loop
    perform dibs._check_name('a task''s kind', v_task.kind),
      dibs._check_name('a task''s queue', v_task.task ->> 'queue');
    perform dibs._check_json(format('task %L', v_task.kind), v_task.task, 'task');
    if v_task.times > 1 then
      raise exception using errcode = 'DI010', message = format('set_tasks was given the task %L twice', v_task.kind);
    end if;
    if jsonb_typeof(v_task.task -> 'arguments') not in ('array', 'null')
      or jsonb_typeof(v_task.task -> 'options') not in ('object', 'null') then
      raise exception using errcode = 'DI010',
        message = format('the arguments of task %L are a JSON array, and its options a JSON object', v_task.kind);
    end if;
  end loop;
end
$$;

comment on function dibs._check_tasks is
'Raise DI010 unless `tasks` is what set_tasks takes: a JSON array of tasks, each kind once.';
