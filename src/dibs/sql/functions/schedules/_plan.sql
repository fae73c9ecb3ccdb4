-- The next slot of a schedule, and the writing of its row.

create or replace function dibs._set_next_slot(
  s dibs.schedule, next_slot timestamptz, upcoming timestamptz[], at timestamptz)
returns dibs.schedule
language plpgsql immutable
as $$
begin
  s.next_scheduled := case when next_slot <= coalesce(s.end_at, 'infinity') then next_slot end;
  s.upcoming := array(select u from unnest(upcoming) as u where u <= coalesce(s.end_at, 'infinity') order by u);
  s.tick_at := s.next_scheduled;
  s.ended_at := case when s.next_scheduled is null then at end;
  return s;
end
$$;

comment on function dibs._set_next_slot is
'Set the next slot of a schedule. If it is null or after `end_at`, the schedule has ended. `upcoming`: the next slots,
beginning with `next_slot`, as a client has read them from a cron expression; empty for other rules.';

create or replace function dibs._plan_from_now(s dibs.schedule, is_new_time boolean, at timestamptz)
returns dibs.schedule
language plpgsql stable
as $$
begin
  s.anchor := coalesce(s.start_at, at);
  if s.rule = 'once' then
    if is_new_time then
      s := dibs._drop_held_slots(s);
    end if;
    -- A new slot may be in the past. A slot that is held waits again.
    if is_new_time or s.held <> '{}' then
      s.held := '{}';
      s.handled_until := s.once - interval '1 microsecond';
    end if;
    -- The schedule may have had this time before, and fired; then it had another rule or time in between.
    return dibs._set_next_slot(s,
      case when s.once > s.handled_until and s.once is distinct from s.last_slot then s.once end, '{}', at);
  end if;
  s.handled_until := greatest(at, s.start_at - interval '1 microsecond');
  s := dibs._drop_held_slots(s);
  if s.rule = 'cron' then
    -- Only a client can read cron. Be due at once, so that the next tick asks one for the slots.
    s.next_scheduled := null;
    s.upcoming := '{}';
    s.ended_at := null;
    s.tick_at := at;
    return s;
  end if;
  return dibs._set_next_slot(s, case s.rule
    when 'fixed_rate' then dibs._next_rate_slot(s.anchor, s.every, s.handled_until)
    else greatest(at, coalesce(s.start_at, at + s.every)) end, '{}', at);
end
$$;

comment on function dibs._plan_from_now is
'Compute the next slot of a schedule from now on. Drop slots that were due or held before, except the slot of `once`: it
stays until it is decided. `is_new_time`: `once` has another time than before.';

create or replace function dibs._save_schedule(s dibs.schedule) returns void
language sql volatile
begin atomic
  update dibs.schedule as x
  set revision = s.revision + 1,
    app = s.app, declared = s.declared, declared_by = s.declared_by, retired_at = s.retired_at, job = s.job,
    rule = s.rule, cron = s.cron, every = s.every, once = s.once, zone = s.zone,
    start_at = s.start_at, end_at = s.end_at, jitter = s.jitter, overlap = s.overlap, catch_up = s.catch_up,
    grace = s.grace, on_failure = s.on_failure, pause_after = s.pause_after,
    anchor = s.anchor, handled_until = s.handled_until, next_scheduled = s.next_scheduled, tick_at = s.tick_at,
    upcoming = s.upcoming, held = s.held,
    paused_at = s.paused_at, pause_reason = s.pause_reason, ended_at = s.ended_at,
    last_slot = s.last_slot, last_job = s.last_job, last_attempt = s.last_attempt, last_success = s.last_success,
    failed_attempts = s.failed_attempts, failed_runs = s.failed_runs,
    fired = s.fired, succeeded = s.succeeded, skipped = s.skipped, missed = s.missed,
    last_duration = s.last_duration, total_duration = s.total_duration, status_message = s.status_message
  where x.id = s.id;
end;

comment on function dibs._save_schedule is
'Write the row of a schedule and raise its revision. The caller has locked the row.';

create or replace function dibs._lock_or_insert_schedule(name text, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  s dibs.schedule;
begin
  loop  -- Another session may insert the row, or delete it, between our statements.
    select x.* into s from dibs.schedule as x where x.name = _lock_or_insert_schedule.name for update;
    exit when found;
    insert into dibs.schedule (name, created_at, job, rule, once, anchor, handled_until)
    values (_lock_or_insert_schedule.name, at, '{}', 'once', at, at, at)
    on conflict do nothing;
  end loop;
  return s;
end
$$;

comment on function dibs._lock_or_insert_schedule is
'Lock the schedule of this name and return its row. If there is none, insert one with default settings and the job {}:
the caller sets its rule and its job.';

create or replace function dibs._without_payload(s dibs.schedule) returns dibs.schedule
language plpgsql immutable
as $$
begin
  s.job := '{}';
  s.declared := null;
  return s;
end
$$;

comment on function dibs._without_payload is 'Return the row of a schedule without its job and its declaration.';

create or replace function dibs._upsert_schedule(
  name text, rule jsonb, job jsonb, app text, declared jsonb, at timestamptz)
returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_default constant jsonb := '{"zone": "UTC", "jitter": "0", "overlap": "skip", "catch_up": 1, "grace": "1 minute",
    "on_failure": "retry", "start_at": null, "end_at": null, "pause_after": null}'::jsonb;
  v_is_declared constant boolean := _upsert_schedule.declared is not null;
  v_given_columns jsonb;
  v_old dibs.schedule;
  v_is_new boolean;
  s dibs.schedule;
begin
  perform dibs._check_schedule_rule(_upsert_schedule.rule);
  if _upsert_schedule.job is not null and dibs._is_confined() then
    perform dibs._check_queue_access(array[coalesce(_upsert_schedule.job ->> 'queue', '')]);
  end if;
  v_given_columns := dibs._rule_columns(_upsert_schedule.rule);
  v_old := dibs._lock_or_insert_schedule(_upsert_schedule.name, at);
  v_is_new := v_old.job = '{}';
  if not v_is_new then
    perform dibs._check_schedule_owner(v_old);
  elsif not v_given_columns ? 'rule' then
    raise exception using errcode = 'DI051', message = format('schedule %L has no rule yet', _upsert_schedule.name),
      hint = 'give one of cron, interval, fixed_rate, fixed_delay, once';
  end if;
  -- Settings that a declaration leaves out get their defaults. A change by hand keeps them.
  s := jsonb_populate_record(v_old, case when v_is_declared then v_default else '{}' end || v_given_columns);
  s.job := coalesce(_upsert_schedule.job, s.job);
  perform dibs._check_schedule_job(s.job), dibs._check_schedule_times(array[s.start_at, s.end_at, s.once]);
  if v_is_declared then
    s.app := _upsert_schedule.app;
    s.declared := _upsert_schedule.declared;
    s.declared_by := session_user;
    s.retired_at := null;
  elsif v_old.retired_at is not null then  -- A retired schedule that is set by hand no longer belongs to the app.
    s.app := null;
    s.declared := null;
    s.retired_at := null;
  end if;
  if v_is_new or v_old.retired_at is not null
    or (s.rule, s.cron, s.every, s.once, s.zone, s.start_at, s.end_at)
      is distinct from (v_old.rule, v_old.cron, v_old.every, v_old.once, v_old.zone, v_old.start_at, v_old.end_at) then
    s := dibs._plan_from_now(s, v_is_new or s.once is distinct from v_old.once, at);
  end if;
  if s is not distinct from v_old then
    return 'unchanged';
  end if;
  -- PostgreSQL logs a row that breaks a constraint. To keep the payload out of the log, first save the row without it:
  -- if that passes the constraints, the whole row does, too. Both saves write the same revision.
  perform dibs._save_schedule(dibs._without_payload(s)), dibs._save_schedule(s);
  return case when v_is_new then 'created' else 'changed' end;
end
$$;

comment on function dibs._upsert_schedule is
'Insert or change a schedule. `declared`: the whole declaration by the app `app`; null if the schedule is set by hand.
Returns `created`, `changed` or `unchanged`.';
