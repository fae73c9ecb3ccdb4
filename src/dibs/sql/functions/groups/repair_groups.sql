-- Groups after the clock was set back, and turns that were lost.

create or replace function dibs._is_put_off(pointer dibs.group_pointer, at timestamptz) returns setof boolean
language sql stable
begin atomic
  select exists (
    select from dibs.group_gate as g
    left join lateral dibs._policy_of(abs((pointer).queue_id), (pointer).group_key) as p on true
    where g.group_key = (pointer).group_key and (
      (pointer).level is null and g.next is not null
      -- A rate owes no more than its burst. Until the next job may start, it is the time of one.
      or g.tat > at and (pointer).place <= at + interval '500 milliseconds' + dibs._token_time(p.rate,
        case when (pointer).level is null then coalesce(p.burst, dibs._default_burst(p.rate)) else 1 end)));
end;

comment on function dibs._is_put_off is
'Whether there is a reason for a pointer to lie ahead: a strict group that waits for a job, or a rate that is spent.';

create or replace function dibs.repair_groups() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  v_moved bigint;
begin
  perform dibs._check_isolation('repair_groups');
  with ahead as materialized (
    select t.ctid as spot from dibs.group_pointer as t
    where t.place > v_now + interval '500 milliseconds' and coalesce(t.floor_at <= v_now, true)
      and not (select p from dibs._is_put_off(t, v_now) as p)
    for update skip locked
  ), gone as (
    delete from dibs.group_pointer as t using ahead as a where t.ctid = a.spot returning t.*
  ), moved as (
    insert into dibs.group_pointer (queue_id, group_key, place, level, floor_at, floor_id, cost, freed, next, ring)
    select g.queue_id, g.group_key, v_now, g.level, g.floor_at, g.floor_id, g.cost, g.freed, g.next, true from gone as g
    returning 1
  )
  select count(*) into v_moved from moved;
  return v_moved + dibs._repair_gates(v_now);
end
$$;

comment on function dibs.repair_groups is
'Bring groups whose jobs are due back to the present after the clock was set back, and count the running jobs of limited
groups again where the count is wrong. Returns how many repairs that were: none, unless something went wrong before.';
