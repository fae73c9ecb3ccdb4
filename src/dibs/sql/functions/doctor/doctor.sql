-- doctor: problems found now, why they matter, and how to fix them.

create or replace function dibs.doctor() returns setof dibs.finding
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
begin
  perform dibs._refuse_confined('the doctor looks at all');
  return query
  select f.* from (
    select * from dibs._find_old_transactions(v_now)
    union all select * from dibs._find_prepared_transactions(v_now)
    union all select * from dibs._find_idle_slots()
    union all select * from dibs._find_hidden_transactions()
    union all select * from dibs._find_dead_rows()
    union all select * from dibs._find_bloat()
    union all select * from dibs._find_full_notify_queue(pg_notification_queue_usage())
    union all select * from dibs._find_missing_days(v_now)
    union all select * from dibs._find_full_default_partitions()
    union all select * from dibs._find_old_days(v_now)
    union all select * from dibs._find_old_audit(v_now)
    union all select * from dibs._find_late_chores()
    union all select * from dibs._find_failing_chores()
    union all select * from dibs._find_unserved_queues(v_now)
    union all select * from dibs._find_unknown_kinds(v_now)
    union all select * from dibs._find_backlogs(v_now)
    union all select * from dibs._find_dead_jobs(v_now)
    union all select * from dibs._find_lost_workers(v_now)
    union all select * from dibs._find_paused_queues(v_now)
    union all select * from dibs._find_expiring_jobs(v_now)
    union all select * from dibs._find_unexpired_jobs(v_now)
    union all select * from dibs._find_unrescued_leases(v_now)
    union all select * from dibs._find_closed_limits()
    union all select * from dibs._find_lost_units()
    union all select * from dibs._find_lost_jobs()
    union all select * from dibs._find_gone_queues()
    union all select * from dibs._find_gone_limits()
    union all select * from dibs._find_bad_schedules(v_now)
    union all select * from dibs._find_bad_settings()
    union all select * from dibs._find_old_server(v_now)
    union all select * from dibs._find_few_connections()
    union all select * from dibs._find_clock_gaps(v_now)
    union all select * from dibs._find_strong_roles()
    union all select * from dibs._find_drift()
  ) as f
  -- The levels, worst first. Python has the same list, SEVERITIES; a test compares them.
  order by array_position(array['error', 'warning', 'note'], f.level);
end
$$;

comment on function dibs.doctor is
'Find what is wrong with the install, the queues and the server, worst first. Each finding has the name of its check,
its level (`error`, `warning` or `note`), a message, the reason why it matters, a fix, and its subject: the name of what
it is about, which stays the same while the numbers in the message change. Call it every minute or so, not for each
request.';
