-- Grants: roles get verbs and views, never tables. They are applied again after each migration, because a function
-- that is created again is executable by everyone until that is revoked.

revoke all on schema dibs from public;
revoke all on all tables in schema dibs from public;
revoke all on all functions in schema dibs from public;
revoke all on all procedures in schema dibs from public;

do $roles$
declare
  v_role text;
begin
  foreach v_role in array dibs._dibs_roles() loop
    if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
      -- The install of another database may be making the role at this moment: wait for it.
      set local lock_timeout = '10s';
      begin
        execute format('create role %I nologin', v_role);
      exception
        when insufficient_privilege then
          raise notice 'dibs: role % was not made, because % may not create roles; everything else is installed',
            v_role, current_user
            using hint = 'let an administrator run: create role ' || v_role || ' nologin; then migrate again';
        when duplicate_object or unique_violation then
          null;  -- Another database's install made it at the same moment.
      end;
    end if;
  end loop;
end
$roles$;

-- Administrators and the owner may do everything, so they may act as each role that may do one thing.
do $actions$
declare
  v_grant record;
begin
  for v_grant in
    select r.rolname as role, m.rolname as member
    from pg_catalog.pg_roles as r join pg_catalog.pg_roles as m on m.rolname in ('dibs_admin', current_user)
    where r.rolname = any ((dibs._dibs_roles())[5:]) and not pg_has_role(m.oid, r.oid,
      case when current_setting('server_version_num')::integer < 160000 then 'member' else 'set' end)
  loop
    begin
      execute format('grant %I to %I', v_grant.role, v_grant.member);
    exception
      when insufficient_privilege then
        if v_grant.member = 'dibs_admin' then
          raise notice 'dibs: dibs_admin was not made a member of %, because % may not grant it',
            v_grant.role, current_user
            using hint = format('let an administrator run: grant %I to dibs_admin', v_grant.role);
        end if;
      when unique_violation then
        null;  -- Another database's install did it at the same moment.
    end;
  end loop;
end
$actions$;

do $grants$
declare
  v_grant record;
begin
  for v_grant in
    select r.rolname as role, p.oid::regprocedure as verb
    from (values
      ('dibs_producer', '{enqueue,enqueue_many,cancel,cancel_many,cancel_key,status_many,why,find_task,bells,make_id,
        now,version}'::text[]),
      ('dibs_worker', '{claim,extend,extend_many,complete,complete_many,fail,fail_many,snooze,snooze_many,release,
        release_many,rescue,expire,make_days,prune,forget,maintain,do_chore,next_due,bells,depth,drain_estimate,
        workers_wanted,status_many,why,register_worker,beat_worker,retire_worker,set_tasks,find_task,now,version}'),
      ('dibs_observer', '{status_many,why,depth,drain_estimate,workers_wanted,next_due,bells,id_time,now,version}'),
      ('dibs_admin', '{enqueue,enqueue_many,claim,extend,extend_many,complete,complete_many,fail,fail_many,snooze,
        snooze_many,release,release_many,cancel,cancel_many,cancel_key,rescue,expire,make_days,prune,forget,maintain,
        do_chore,set_queue,set_strict,pause,resume,why,show,status_many,depth,drain_estimate,workers_wanted,next_due,
        bells,register_worker,beat_worker,retire_worker,set_tasks,find_task,make_id,id_time,now,version}'),
      ('dibs_producer', '{declare_schedules,trigger,preview_schedule}'),
      ('dibs_worker', '{declare_schedules,run_schedules,fire,preview_schedule}'),
      ('dibs_observer', '{preview_schedule}'),
      ('dibs_admin', '{set_schedule,drop_schedule,declare_schedules,pause_schedule,resume_schedule,run_schedules,fire,
        trigger,preview_schedule,show_schedule}'),
      ('dibs_producer', '{status}'),
      ('dibs_worker', '{hold_shards,release_shards,roll_up,progress,progress_many,status}'),
      ('dibs_observer', '{doctor,vitals,counters,statistics,status}'),
      ('dibs_admin', '{hold_shards,release_shards,roll_up,doctor,vitals,counters,statistics,set_stat_retention,
        progress,progress_many,status}'),
      -- Functions of the database, channels and supervisors.
      ('dibs_producer', '{supervise,supervised,delivery_stage,append_error,envelope_ok,envelope_error,
        envelope_invalid,check_envelope}'),
      ('dibs_worker', '{find_function,begin_function,run_function,run_job,run_handler,begin_delivery,record_delivery,
        delivery_stage,append_error,envelope_ok,envelope_error,envelope_invalid,check_envelope}'),
      ('dibs_observer', '{function_flaw,supervised,delivery_stage,confined_to}'),
      ('dibs_admin', '{confine,confined_to,allow_function,disallow_function,function_flaw,find_function,
        begin_function,run_function,run_job,run_handler,begin_delivery,record_delivery,delivery_stage,supervise,
        supervised,append_error,set_error_retention,envelope_ok,envelope_error,envelope_invalid,check_envelope}'),
      ('dibs_worker', '{bury_unreadable,repair_groups,repair_limits,declare_limits,park,park_many,unpark}'),
      ('dibs_admin', '{bury_unreadable,repair_groups,repair_jobs,repair_limits,set_group,drop_group,set_limit,
        drop_limit,declare_limits,park,park_many,unpark}'),
      ('dibs_observer', '{find_jobs,queue_settings,depth_by_priority,groups}'),
      ('dibs_admin', '{find_jobs,queue_settings,depth_by_priority,groups,delete,purge,move,edit,retry,cancel_where,
        undo,drop_queue,clone,payloads,stop_worker}'),
      -- Actions of people: the dashboard takes the role of the action for each request.
      ('dibs_read', '{show,payloads,show_schedule}'),
      ('dibs_retry', '{retry,undo,now,version}'),
      ('dibs_cancel', '{cancel,cancel_where,now,version}'),
      ('dibs_delete', '{delete,now,version}'),
      ('dibs_edit', '{edit,move,clone,set_queue,queue_settings,now,version}'),
      ('dibs_pause', '{pause,resume,stop_worker,now,version}'),
      ('dibs_schedules', '{trigger,pause_schedule,resume_schedule,now,version}')
    ) as g (role, verbs)
    join pg_catalog.pg_roles as r on r.rolname = g.role or (g.role = 'dibs_observer' and r.rolname = 'dibs_read')
    join pg_catalog.pg_proc as p on p.proname = any (g.verbs)
    where p.pronamespace = 'dibs'::regnamespace order by r.rolname
  loop
    execute format('grant usage on schema dibs to %I', v_grant.role);
    execute format('grant execute on function %s to %I', v_grant.verb, v_grant.role);
  end loop;
  for v_grant in
    select r.rolname as role, c.oid::regclass as seen
    from pg_catalog.pg_roles as r cross join pg_catalog.pg_class as c
    where r.rolname in ('dibs_observer', 'dibs_read', 'dibs_admin')
      and c.relnamespace = 'dibs'::regnamespace and c.relkind = 'v'
  loop
    execute format('grant select on %s to %I', v_grant.seen, v_grant.role);
  end loop;
end
$grants$;
