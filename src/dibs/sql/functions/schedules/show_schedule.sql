-- The next slots of a schedule, and everything known of one.

create or replace function dibs.preview_schedule(name text, count integer default 10) returns setof timestamptz
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  s dibs.schedule;
begin
  perform dibs._check_count('preview_schedule', preview_schedule.count);
  select x.* into s from dibs.schedule as x
  where x.name = preview_schedule.name and dibs._may_see_queue(x.job ->> 'queue');
  if not found then
    perform dibs._lock_schedule(preview_schedule.name);  -- It raises DI050.
  end if;
  return query
  select k.slot from (
    select u as slot from unnest(s.upcoming) as u
    where s.rule = 'cron' and (s.paused_at is null or u > dibs.now())  -- The others are dropped at the resume.
    union all
    select s.next_scheduled + n * s.every from generate_series(0, preview_schedule.count - 1) as n
    where s.rule in ('interval', 'fixed_rate')
    union all
    select s.next_scheduled where s.rule in ('fixed_delay', 'once')) as k
  where k.slot <= coalesce(s.end_at, 'infinity') order by k.slot limit preview_schedule.count;
end
$$;

comment on function dibs.preview_schedule is
'Return the next slots of a schedule, up to `count`. For cron: up to 10, which the last scheduler has stored. For an
interval: as if each slot fired in time. For a fixed delay and once: one slot, if it is known.';

create or replace function dibs.show_schedule(name text) returns jsonb
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select to_jsonb(v) || jsonb_build_object('job', s.job, 'declared', s.declared is not null,
    'runs', coalesce((
      select jsonb_agg(to_jsonb(r) - 'schedule' order by r.fired_at desc, r.slot desc)
      from (select x.* from dibs.schedule_runs as x where x.schedule = show_schedule.name
            order by x.fired_at desc, x.slot desc limit 10) as r), '[]'))
  from dibs.schedules as v join dibs.schedule as s on s.name = v.name where v.name = show_schedule.name;
end;

comment on function dibs.show_schedule is
'Return a schedule as one JSON document: its row of the view `schedules`, its job and its last 10 runs. Null if there is
none of that name.';
