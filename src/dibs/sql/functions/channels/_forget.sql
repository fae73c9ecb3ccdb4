-- Deletion of old errors, deliveries and supervised processes.

create or replace function dibs._delete_old_channel_data() returns bigint
language plpgsql volatile
as $$
declare
  v_at timestamptz := dibs.now();
  v_errors bigint;
  v_deliveries bigint;
  v_supervised bigint;
begin
  with gone as (
    delete from dibs.error as e
    -- There is no index by time. Ids grow with time, so read the 10,000 lowest ids only.
    where e.id in (
      select o.id from (select f.id, f.at from dibs.error as f order by f.id limit 10000) as o
      where o.at < v_at - (select s.error_retention from dibs.setting as s))
    returning 1)
  select count(*) into v_errors from gone;
  -- Keep a delivery while its job exists: the job may run again.
  with gone as (
    delete from dibs.delivery as d
    where d.seq in (
      select o.seq from dibs.delivery as o
      where o.at < v_at - interval '1 day' and not exists (select from dibs.job as j where j.id = o.job_id)
      order by o.seq limit 10000)
    returning 1)
  select count(*) into v_deliveries from gone;
  -- The id of a look says when it was made. Keep the process while the look waits or runs.
  with gone as (
    delete from dibs.supervised_process as p
    where p.ctid in (
      select o.ctid from dibs.supervised_process as o
      where o.job_id < dibs._id_floor(v_at - interval '1 day')
        and not exists (select from dibs.ready as r where r.id = o.job_id)
        and not exists (select from dibs.blocked as b where b.id = o.job_id)
        and not exists (select from dibs.lease as l where l.id = o.job_id)
      order by o.job_id limit 10000 for update skip locked)
    returning 1)
  select count(*) into v_supervised from gone;
  return v_errors + v_deliveries + v_supervised;
end
$$;

comment on function dibs._delete_old_channel_data is
'Delete up to 10,000 each of errors past their retention, of deliveries whose job is gone, and of supervised processes
whose last look was made over a day ago and has ended. Return how many rows were deleted.';
