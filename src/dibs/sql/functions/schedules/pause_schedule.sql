-- Pausing and resuming a schedule.

create or replace function dibs.pause_schedule(name text, reason text default 'paused by request') returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  s dibs.schedule := dibs._lock_schedule(name);
begin
  if s.paused_at is not null then
    return false;
  end if;
  s.paused_at := dibs.now();
  s.pause_reason := reason;
  perform dibs._save_schedule(s);
  perform dibs._audit_schedule('pause_schedule', name, jsonb_build_object('reason', reason));
  return true;
end
$$;

comment on function dibs.pause_schedule is
'Pause a schedule: it makes no jobs until `resume_schedule`. Jobs it has already made go on. Returns false if it was
paused before.';

create or replace function dibs.resume_schedule(name text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  s dibs.schedule := dibs._lock_schedule(name);
begin
  if s.paused_at is null then
    return false;
  end if;
  s.paused_at := null;
  s.pause_reason := null;
  s.failed_runs := 0;
  s := dibs._drop_held_slots(s);
  -- Drop the slots of cron and fixed_rate that came during the pause. The other rules have one slot at most: if it came
  -- during the pause, it is due at once.
  if coalesce(s.next_scheduled, v_now) <= v_now and s.rule = 'cron' and s.ended_at is null then
    s.handled_until := greatest(s.handled_until, v_now);
    s.next_scheduled := null;
    s.upcoming := '{}';
    s.tick_at := v_now;
  elsif s.next_scheduled <= v_now and s.rule = 'fixed_rate' then
    s.handled_until := v_now;
    s := dibs._set_next_slot(s, dibs._next_rate_slot(s.anchor, s.every, v_now), '{}', v_now);
  end if;
  perform dibs._save_schedule(s), dibs._audit_schedule('resume_schedule', name);
  return true;
end
$$;

comment on function dibs.resume_schedule is
'Resume a paused schedule from now on. Slots of cron and fixed_rate that came during the pause are dropped; the slot of
another rule that came during the pause is handled at once, perhaps as a late one. Returns false if the schedule was not
paused.';
