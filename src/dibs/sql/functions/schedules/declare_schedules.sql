-- declare_schedules: an app's schedules, brought to the database.

create or replace function dibs.declare_schedules(app text, schedules jsonb) returns table (name text, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  -- A schedule enqueues; for who may not, the schedules are only compared.
  v_may constant boolean := dibs._may_call('enqueue_many');
  v_declared record;
  s dibs.schedule;
begin
  perform dibs._check_isolation('declare_schedules');
  if coalesce(declare_schedules.app, '') = '' or jsonb_typeof(schedules) is distinct from 'array' then
    raise exception using errcode = 'DI051',
      message = 'declare_schedules takes the name of an app and a JSON array of its schedules',
      hint = 'pass [{"name": "nightly", "rule": {"cron": "0 3 * * *"}, "job": {"queue": "q", "kind": "k"}}, …]';
  end if;
  perform dibs._check_name('an app''s name', declare_schedules.app);
  perform dibs._check_items('declare_schedules', array(select e ->> 'name' from jsonb_array_elements(schedules) as e), 'names');
  perform from dibs.schedule as x where v_may and x.app = declare_schedules.app and dibs._may_change_schedule(x) order by x.id for update;
  for v_declared in
    select e ->> 'name' as name, e as whole from jsonb_array_elements(schedules) as e order by e ->> 'name'
  loop
    select x.* into s from dibs.schedule as x where x.name = v_declared.name for update;
    name := v_declared.name;
    -- What people changed by hand stays until the code changes.
    answer := case
      when found and s.declared = v_declared.whole and s.app = declare_schedules.app and s.retired_at is null
        and dibs._may_see_queue(s.job ->> 'queue')
      then 'unchanged'
      when not v_may then 'refused'
      else dibs._upsert_schedule(v_declared.name, v_declared.whole -> 'rule', v_declared.whole -> 'job',
        declare_schedules.app, v_declared.whole, v_now) end;
    return next;
  end loop;
  for s in
    select x.* from dibs.schedule as x
    where v_may and x.app = declare_schedules.app and x.retired_at is null and dibs._may_change_schedule(x)
      and x.name not in (select e ->> 'name' from jsonb_array_elements(schedules) as e) order by x.id for update
  loop
    s.retired_at := v_now;
    s.tick_at := null;
    s.held := '{}';
    perform dibs._save_schedule(s);
    name := s.name;
    answer := 'retired';
    return next;
  end loop;
end
$$;

comment on function dibs.declare_schedules is
'Worker protocol: bring the schedules an app declares in its code to the database, all of them at once: a JSON array of {"name", "rule",
"job"}. Each is made or changed if the code has changed since it was last declared; one that the app no longer declares
is retired: it stays, with its health, but makes no jobs until it is declared again. A schedule belongs to the login that declared
it, and to those that have a role in common with it. Answers for each: `created`,
`changed`, `unchanged`, `retired`. For who may not enqueue nothing is changed: `unchanged` says that the schedule is in force, `refused` that it
is not.';
