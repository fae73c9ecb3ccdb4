-- forget: delete small rows that are no longer needed.

create or replace function dibs.forget() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_hints bigint;
  v_workers bigint;
begin
  perform dibs._check_isolation('forget');
  with gone as (
    delete from dibs.floor_hint as h
    where h.ctid = any (array(
      select o.ctid from dibs.floor_hint as o
      where o.swept_at < (
          select max(n.swept_at) from dibs.floor_hint as n where n.what = o.what and n.queue_id = o.queue_id)
        and o.swept_at < clock_timestamp() - interval '1 minute'
      limit 10000 for update skip locked))
    returning 1)
  select count(*) into v_hints from gone;
  with gone as (
    delete from dibs.worker as w
    where w.id in (
      select o.id from dibs.worker as o where o.seen_at < dibs.now() - interval '7 days'
      limit 10000 for update skip locked)
    returning 1)
  select count(*) into v_workers from gone;
  perform dibs._forget_parked_kinds();
  perform dibs._delete_old_schedule_runs(), dibs._delete_old_failures(dibs.now());
  return v_hints + v_workers + dibs._forget_dedup_keys() + dibs._delete_old_channel_data() + dibs._forget_undo()
    + dibs._forget_audit(dibs.now()) + dibs._forget_follow_ups();
end
$$;

comment on function dibs.forget is
'Worker protocol: delete old hints of where to scan, workers not seen for 7 days, dedup keys whose time is over, errors
and rows of the audit past their retention, deliveries and parents of jobs that are gone, processes that no supervisor
watches any more, operations that can no longer be undone, old parked kinds, failures and runs of schedules. Returns how
many rows were deleted, without parked kinds, failures and runs of schedules.';
