-- Making, changing, stopping and removing schedules.

create or replace function dibs.set_schedule(name text, rule jsonb default '{}', job jsonb default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform dibs.check_isolation('set_schedule');
  return dibs.put_schedule(name, rule, job, null, null, dibs.now());
end
$$;

comment on function dibs.set_schedule is
'Make a schedule, or change it while it runs; what is not named stays as it is. `rule` is a JSON object with one of cron
(five fields, or six with seconds in front; a dibs process must run to read it), interval, fixed_rate, fixed_delay
(durations in seconds or as intervals) and once (a time); and zone (an IANA name), start_at, end_at, jitter, overlap
(skip, queue, allow, cancel), catch_up (none, last, or up to how many), grace, on_failure (retry, next) and pause_after.
`job` is a JSON object as `enqueue_many` takes it: queue, kind, payload and options. Answers `created`, `changed` or
`unchanged`; raises DI051 when the rule makes no sense.';

create or replace function dibs.unset_schedule(name text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_id integer := (dibs.schedule_named(name)).id;
begin
  delete from dibs.schedule_run as r where r.schedule_id = v_id;
  delete from dibs.schedule as s where s.id = v_id;
end
$$;

comment on function dibs.unset_schedule is
'Remove a schedule and its records; the jobs it has made stay. Raises DI050 when there is none of that name.';

create or replace function dibs.declare_schedules(app text, schedules jsonb) returns table (name text, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_declared record;
  s dibs.schedule;
begin
  perform dibs.check_isolation('declare_schedules');
  if coalesce(declare_schedules.app, '') = '' or jsonb_typeof(schedules) is distinct from 'array' then
    raise exception using errcode = 'DI051', message = 'declare_schedules takes the name of an app and a JSON array of its schedules',
      hint = 'pass [{"name": "nightly", "rule": {"cron": "0 3 * * *"}, "job": {"queue": "q", "kind": "k"}}, …]';
  end if;
  perform from dibs.schedule as x where x.app = declare_schedules.app order by x.id for update;
  for v_declared in select e ->> 'name' as name, e as whole from jsonb_array_elements(schedules) as e order by e ->> 'name' loop
    select x.* into s from dibs.schedule as x where x.name = v_declared.name for update;
    name := v_declared.name;
    -- What people changed by hand stays until the code changes.
    answer := case when found and s.declared = v_declared.whole and s.app = declare_schedules.app and s.retired_at is null then 'unchanged'
      else dibs.put_schedule(v_declared.name, v_declared.whole -> 'rule', v_declared.whole -> 'job', declare_schedules.app,
        v_declared.whole, v_now) end;
    return next;
  end loop;
  for s in
    select x.* from dibs.schedule as x
    where x.app = declare_schedules.app and x.retired_at is null
      and x.name not in (select e ->> 'name' from jsonb_array_elements(schedules) as e) order by x.id
  loop
    s.retired_at := v_now;
    s.tick_at := null;
    s.held := '{}';
    perform dibs.save_schedule(s);
    name := s.name;
    answer := 'retired';
    return next;
  end loop;
end
$$;

comment on function dibs.declare_schedules is
'Bring the schedules an app declares in its code to the database, all of them at once: a JSON array of {"name", "rule",
"job"}. Each is made or changed if the code has changed since it was last declared; one that the app no longer declares
is retired: it stays, with its health, but makes no jobs until it is declared again. Answers for each: `created`,
`changed`, `unchanged`, `retired`.';

create or replace function dibs.pause_schedule(name text, reason text default 'paused by request') returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  s dibs.schedule := dibs.schedule_named(name);
begin
  if s.paused_at is not null then
    return false;
  end if;
  s.paused_at := dibs.now();
  s.pause_reason := reason;
  perform dibs.save_schedule(s);
  return true;
end
$$;

comment on function dibs.pause_schedule is
'Let a schedule make no jobs until `resume_schedule`; the ones it has made go on. Returns whether it was running before.';

create or replace function dibs.resume_schedule(name text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  s dibs.schedule := dibs.schedule_named(name);
begin
  if s.paused_at is null then
    return false;
  end if;
  s.paused_at := null;
  s.pause_reason := null;
  s.failed_runs := 0;
  s.skipped := s.skipped + cardinality(s.held);
  s.held := '{}';
  -- The slots of the pause are gone. A rule that counts from the last run goes on, or is due at once.
  if coalesce(s.next_scheduled, v_now) <= v_now and s.rule = 'cron' and s.ended_at is null then
    s.handled_until := v_now;
    s.next_scheduled := null;
    s.tick_at := v_now;
  elsif s.next_scheduled <= v_now and s.rule = 'fixed_rate' then
    s.handled_until := v_now;
    s := dibs.planned(s, dibs.rate_slot(s.anchor, s.every, v_now), '{}', v_now);
  end if;
  perform dibs.save_schedule(s);
  return true;
end
$$;

comment on function dibs.resume_schedule is
'Let a paused schedule go on from now; the slots of the pause are not made up for. Returns whether it was paused.';
