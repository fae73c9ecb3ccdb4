-- Repairs of groups: pointers that lie ahead because the clock was set back, and gates that count wrong.

create or replace function dibs.repair_groups() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  -- Claims put pointers to due tickets a little ahead, 400 ms at most, unless the group has to wait.
  v_latest_usual_look_at timestamptz := v_now + interval '500 milliseconds';
  v_moved bigint;
begin
  perform dibs._check_isolation('repair_groups');
  with ahead as materialized (
    -- Pointers to due tickets, and wakeups, that lie further ahead without a reason.
    select t.ctid as spot from dibs.group_pointer as t
    where t.look_at > v_latest_usual_look_at and coalesce(t.floor_at <= v_now, true) and not exists (
      select from dibs.group_gate as g
      left join lateral dibs._find_group_policy(abs(t.queue_id), t.group_key) as p on true
      cross join lateral (
        select
          -- A wakeup for the time when the next job of a strict group is due.
          t.priority is null
            and exists (select from dibs.ready as r where r.id = g.next_id and r.due_at >= t.look_at) as waits_for_job,
          -- The rate is spent. A pointer to a ticket waits for one token, a wakeup for the whole burst.
          g.tat > v_now and t.look_at <= v_latest_usual_look_at + case when t.priority is null
            then dibs._burst(p.rate, p.burst) else 1 end / p.rate * interval '1 second' as waits_for_rate) as reason
      where g.group_key = t.group_key and (reason.waits_for_job or reason.waits_for_rate))
    for update skip locked
  ), gone as (
    delete from dibs.group_pointer as t using ahead as a where t.ctid = a.spot returning t.*
  ), moved as (
    insert into dibs.group_pointer (
      queue_id, group_key, look_at, priority, floor_at, floor_id, cost, ended_runs, next_id, ring)
    select g.queue_id, g.group_key, v_now, g.priority, g.floor_at, g.floor_id, g.cost, g.ended_runs, g.next_id, true
    from gone as g
    returning 1
  )
  select count(*) into v_moved from moved;
  return v_moved + dibs._repair_group_gates(v_now);
end
$$;

comment on function dibs.repair_groups is
'Make groups whose jobs are due ready to be claimed after the clock was set back, and count the running jobs of limited
groups again where the count is wrong. Returns how many pointers were moved and groups counted again: 0,
unless something went wrong before.';
