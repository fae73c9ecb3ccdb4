-- Groups after the clock was set back.

create or replace function dibs.repair_groups() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_now timestamptz := dibs.now();
  v_moved bigint;
begin
  perform dibs._check_isolation('repair_groups');
  -- What points to jobs that are due, but lies ahead; a rate that is spent has a reason for that.
  with ahead as materialized (
    select t.ctid as spot from dibs.group_pointer as t
    where t.place > v_now + interval '500 milliseconds' and coalesce(t.floor_at <= v_now, true)
      and not exists (select from dibs.group_gate as g where g.lane = t.lane and g.tat > v_now)
    for update skip locked
  ), gone as (
    delete from dibs.group_pointer as t using ahead as a where t.ctid = a.spot returning t.*
  ), moved as (
    insert into dibs.group_pointer (queue_id, lane, place, level, floor_at, floor_id, cost, freed, next, ring)
    select g.queue_id, g.lane, v_now, g.level, g.floor_at, g.floor_id, g.cost, g.freed, g.next, true from gone as g
    returning 1
  )
  select count(*) into v_moved from moved;
  return v_moved;
end
$$;

comment on function dibs.repair_groups is
'After the clock was set back: bring groups whose jobs are due back to the present. Returns how many that were; none, as long as the clock
runs forward.';
