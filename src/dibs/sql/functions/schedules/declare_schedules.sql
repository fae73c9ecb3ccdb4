-- declare_schedules: store the schedules that an app declares in its code.

create or replace function dibs.declare_schedules(app text, schedules jsonb) returns table (name text, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  -- A schedule enqueues jobs. For a caller that may not enqueue, change nothing.
  v_may_enqueue constant boolean := dibs._may_call('enqueue_many');
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
  perform dibs._check_items(
    'declare_schedules', array(select e ->> 'name' from jsonb_array_elements(schedules) as e), 'names');
  -- Lock in the order of ids, as ticks do; the loop below goes by name.
  perform from dibs.schedule as x
  where v_may_enqueue and x.app = declare_schedules.app and dibs._may_change_schedule(x)
  order by x.id for update;
  for v_declared in
    select e ->> 'name' as name, e as whole from jsonb_array_elements(schedules) as e order by e ->> 'name'
  loop
    select x.* into s from dibs.schedule as x where x.name = v_declared.name for update;
    name := v_declared.name;
    -- A change by hand stays until the code changes. So compare with the last declaration, and not with the row.
    answer := case
      when found and s.declared = v_declared.whole and s.app = declare_schedules.app and s.retired_at is null
        and dibs._may_see_queue(s.job ->> 'queue')
      then 'unchanged'
      when not v_may_enqueue then 'refused'
      else dibs._upsert_schedule(v_declared.name, v_declared.whole -> 'rule', v_declared.whole -> 'job',
        declare_schedules.app, v_declared.whole, v_now) end;
    return next;
  end loop;
  for s in
    select x.* from dibs.schedule as x
    where v_may_enqueue and x.app = declare_schedules.app and x.retired_at is null and dibs._may_change_schedule(x)
      and x.name not in (select e ->> 'name' from jsonb_array_elements(schedules) as e) order by x.id for update
  loop
    s.retired_at := v_now;
    s.tick_at := null;
    s := dibs._drop_held_slots(s);
    perform dibs._save_schedule(s);
    name := s.name;
    answer := 'retired';
    return next;
  end loop;
end
$$;

comment on function dibs.declare_schedules is
'Worker protocol: store all schedules that an app declares in its code, as a JSON array of {"name", "rule", "job"}. A
schedule is created or changed if its declaration differs from the last one. A schedule that the app no longer declares
is retired: it keeps its health, but makes no jobs until it is declared again. A schedule belongs to the login that
declared it, and to logins that share a role with it. Answers for each schedule `created`, `changed`, `unchanged` or
`retired`. A caller that may not enqueue changes nothing: `unchanged` means that the schedule is in force, and `refused`
that it is not.';
