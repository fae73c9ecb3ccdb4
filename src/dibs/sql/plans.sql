-- Planner settings of verbs. README.md, "Planner settings", says why. A function that is not named here keeps the
-- settings of its caller, or has settings where it is defined.

do $plans$
declare
  v_plan record;
  v_function record;
begin
  for v_plan in
    select p.name, p.settings, regexp_split_to_array(btrim(p.functions, E' \n'), '\s+') as functions
    from (values
      -- Take the first few rows in the order of an index: never read all that is due and sort it.
      ('index order', '{enable_seqscan=off,enable_bitmapscan=off,enable_sort=off,
          plan_cache_mode=force_generic_plan,jit=off}'::text[], '
        _ahead_note _check_group_depths _count_ungrouped _first_blocked _first_blocked_queue _measure_group_pressure
        _measure_pressure _longest_waiting_groups _unpark_due _find_oldest_ready _unblock_all _unblock_limit
        _unpark_for_worker _untried_jobs _waiting_in_group claim next_due'),
      -- Find rows by their ids, one by one: never read a whole table to join it.
      ('by id', '{enable_seqscan=off,enable_hashjoin=off,enable_mergejoin=off,
          plan_cache_mode=force_generic_plan,jit=off}', '
        _cancel_batch _expire_batch _next_lost_jobs extend_many fail_many fire hold_shards park_many progress_many
        release_many rescue run_schedules snooze_many'),
      -- Few joins, called often: no planning after the first call of a connection.
      ('generic', '{enable_seqscan=off,plan_cache_mode=force_generic_plan,jit=off}', '
        _enqueue_batch _sample_tickets complete enqueue'),
      -- Planned at each call with the real arguments, but never by reading a whole table.
      ('indexed', '{enable_seqscan=off,jit=off}', '
        _enqueue_rates _delete_dead_of_day _death_rate _delete_past_retention _end_rates _relatives_of _has_more_runs
        _lock_dedup_keys _group_concurrency_cap _record_chore_step _read_chore _restore_jobs _mean_run_times _state
        _lock_chore begin_delivery bury_unreadable cancel_key cancel_where clone delete edit move payloads purge
        record_delivery resume status_many supervise undo'),
      -- Rare, or over small tables: any plan will do, as long as it is not compiled.
      ('any', '{jit=off}', '
        declare_limits drop_group drop_limit repair_groups repair_jobs repair_limits set_group set_limit statistics')
    ) as p (name, settings, functions)
  loop
    for v_function in
      select n.name, f.oid::regprocedure as signature from unnest(v_plan.functions) as n (name)
      left join pg_proc as f on f.pronamespace = 'dibs'::regnamespace and f.proname = n.name
    loop
      if v_function.signature is null then
        raise exception 'plans.sql names dibs.%, which is not a function', v_function.name;
      end if;
      execute (
        select string_agg(format('alter function %s set %s', v_function.signature, s.setting), ';')
        from unnest(v_plan.settings) as s (setting));
    end loop;
  end loop;
end
$plans$;
