-- vitals: numbers of the whole database, for monitoring.

create or replace function dibs.vitals() returns setof dibs.vital
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
begin
  perform dibs._refuse_confined('what is measured here belongs to all');
  return query
  select * from dibs._measure_workers(v_now)
  union all select * from dibs._measure_schedules(v_now)
  union all select * from dibs._measure_limits()
  union all select * from dibs._measure_horizon(v_now)
  union all select * from dibs._measure_server()
  union all select * from dibs._measure_tables();
end
$$;

comment on function dibs.vitals is
'Worker protocol: return numbers of the whole database, for monitoring: workers, chores, schedules, limits, sizes and
dead rows of tables, the age of the oldest transaction, the notification queue and connections. Each row has the name of
a metric without `dibs_`, the values of its labels, and the number.';
