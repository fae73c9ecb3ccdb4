-- maintain: all chores in one call, for installs without a running worker.

create or replace function dibs.maintain() returns table (chore text, counts jsonb, note text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_done record;
begin
  perform dibs._check_isolation('maintain');
  -- By period, so that prune and make_days come last: the locks of their DDL last until the transaction ends.
  for chore in select c.name from dibs.chore as c order by c.every, c.name loop
    v_done := dibs.do_chore(chore, true);
    counts := v_done.counts;
    note := case
      when v_done.outcome = 'busy' then 'skipped: another process is doing it'
      when v_done.outcome = 'failed' then 'failed: ' || v_done.error
      when v_done.cron <> '[]'
      then format('%s schedules wait for a process that can read cron', jsonb_array_length(v_done.cron))
      when v_done.more then 'there is more to do' end;
    return next;
  end loop;
end
$$;

comment on function dibs.maintain is
'Do one step of every chore, due or not: rescue, schedule, expire, roll_up, repair_groups, repair_limits, forget,
prune, make_days. For cron or pg_cron where neither a worker nor `dibs maintain` runs: call it every few seconds.
Returns what each chore counted, and a note if it was skipped because another process does it, failed, or has more to
do. A chore that fails stops no other.';
