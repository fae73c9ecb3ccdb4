-- maintain: everything that has to be done now and then, in one call, for those without a running dibs.

create or replace function dibs.maintain() returns table (step text, count bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform dibs._check_isolation('maintain');
  if not dibs._is_alone('maintain') then
    return;
  end if;
  for step in select s.step from dibs._upkeep_steps() as s order by s.n loop
    count := dibs._do_step(step);
    if count is not null then
      return next;
    end if;
  end loop;
end
$$;

comment on function dibs.maintain is
'One round of all the upkeep: rescue, expire, run_schedules, roll_up, repair_groups, repair_limits, forget, make_days,
prune. For cron or pg_cron where neither a worker nor `dibs maintain` runs; call it every few seconds. Returns what
it did; nothing when another round is running.';
