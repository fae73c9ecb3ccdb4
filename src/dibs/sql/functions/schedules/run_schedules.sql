-- Make the jobs of due slots: the tick, the answer of a client that read cron, and the trigger.

create or replace function dibs.run_schedules(max integer default 100,
  out fired bigint, out skipped bigint, out missed bigint, out troubled bigint,
  out known boolean, out more boolean, out wait interval, out cron jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_locked integer := 0;
  v_due integer := 0;
  v_old dibs.schedule;
  s dibs.schedule;
begin
  perform dibs._check_isolation('run_schedules');
  perform dibs._check_count('run_schedules', run_schedules.max);
  fired := 0; skipped := 0; missed := 0; troubled := 0; cron := '[]';
  for v_old in
    select x.* from dibs.schedule as x
    where x.id = any (array(
        select d.id from dibs.schedule as d where d.tick_at <= v_now and d.paused_at is null and d.retired_at is null
          and (d.rule <> 'cron' or dibs._may_see_queue(d.job ->> 'queue'))
        order by d.tick_at limit run_schedules.max)
      || array(select distinct r.schedule_id from dibs.schedule_run as r where r.ended_at is null))
    order by x.id for update skip locked
  loop
    v_locked := v_locked + 1;
    v_due := v_due + coalesce(v_old.tick_at <= v_now and v_old.paused_at is null and v_old.retired_at is null
      and (v_old.rule <> 'cron' or dibs._may_see_queue(v_old.job ->> 'queue')), false)::integer;
    begin
      s := dibs._tick_schedule(v_old, v_now);
    exception when others then
      -- An error of one schedule must not stop the others: its job may be refused, or it may have waited too long for
      -- a producer of the same dedup key, or for a handler that completes the run to be cancelled.
      s := dibs._retry_tick_later(v_old, sqlerrm, v_now);
      troubled := troubled + 1;
    end;
    if s.rule = 'cron' and s.tick_at <= v_now and s.paused_at is null and s.retired_at is null
      and dibs._may_see_queue(s.job ->> 'queue') then
      -- `fire` compares the revision with that of the row as it is saved below.
      cron := cron || jsonb_build_object('name', s.name, 'cron', s.cron, 'zone', s.zone, 'after', s.handled_until,
        'until', least(v_now, s.end_at), 'revision', s.revision + (s is distinct from v_old)::integer);
    end if;
    if s is distinct from v_old then
      perform dibs._save_schedule(s);
      fired := fired + s.fired - v_old.fired;
      skipped := skipped + s.skipped - v_old.skipped;
      missed := missed + s.missed - v_old.missed;
    end if;
  end loop;
  more := v_due >= run_schedules.max;
  known := v_locked > 0 or exists (select from dibs.schedule);
  wait := (select min(x.tick_at) from dibs.schedule as x
           where x.tick_at is not null and x.paused_at is null and x.retired_at is null
             and (x.rule <> 'cron' or x.tick_at > v_now or dibs._may_see_queue(x.job ->> 'queue'))) - v_now;
end
$$;

comment on function dibs.run_schedules is
'Worker protocol: do one round over the schedules: record how their jobs ended, and make the jobs of due slots, for up
to `max` due schedules. Any number of processes may call it at once: each slot gets one job. A client must read cron:
`cron` lists the cron schedules that are due, to be answered with `fire`; a role that is confined to some queues gets
only theirs. Returns how many slots were `fired`, `skipped` and `missed`, how many schedules were `troubled` by an
error, whether any schedule exists (`known`), whether there may be `more` to do, and the time until the next slot
(`wait`, null if there is none).';

create or replace function dibs._check_fired_slots(
  s dibs.schedule, slots timestamptz[], upcoming timestamptz[], at timestamptz) returns void
language plpgsql immutable
as $$
declare
  v_in_time constant timestamptz[] := array(
    select distinct k from unnest(slots) as k where k > s.handled_until and k <= at order by k);
begin
  if slots is null or upcoming is null or slots <> v_in_time or cardinality(slots) > 10000
    or slots[cardinality(slots)] >= upcoming[1] then
    raise exception using errcode = 'DI051',
      message = format('fire takes the slots of schedule %L after %s and up to now, in order, and the next ones',
        s.name, s.handled_until),
      hint = 'compute them from what run_schedules answered';
  end if;
end
$$;

comment on function dibs._check_fired_slots is
'Refuse slots for `fire` that were handled before, are not due yet, are not in order or are given twice, or more than
10,000 of them.';

create or replace function dibs.fire(name text, revision bigint, slots timestamptz[], upcoming timestamptz[],
  trouble text default null, out answer text, out fired bigint, out skipped bigint, out missed bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_old dibs.schedule;
  s dibs.schedule;
begin
  perform dibs._check_isolation('fire');
  fired := 0; skipped := 0; missed := 0;
  select x.* into v_old from dibs.schedule as x where x.name = fire.name and dibs._may_see_queue(x.job ->> 'queue')
  for update skip locked;
  if v_old.id is null or v_old.revision is distinct from fire.revision or v_old.rule <> 'cron'
    or v_old.paused_at is not null or v_old.retired_at is not null then
    answer := 'stale';
    return;
  end if;
  perform dibs._check_items('fire', upcoming, 'names'), dibs._check_schedule_times(upcoming);
  -- The longest gap of a cron expression: February 29th may be missing for 8 years.
  if fire.trouble is null and coalesce(
    upcoming[1] > greatest(v_now, v_old.handled_until) + interval '8 years 1 day', upcoming = '{}') then
    fire.trouble := 'it has no slot within 8 years';
  end if;
  if fire.trouble is not null then
    perform dibs._save_schedule(dibs._retry_tick_later(v_old, fire.trouble, v_now));
    answer := 'troubled';
    return;
  end if;
  perform dibs._check_fired_slots(v_old, slots, upcoming, v_now);
  begin
    s := dibs._record_run_outcomes(v_old, v_now);
    if s.paused_at is null then  -- A run that failed may have just paused it.
      s := dibs._enqueue_held_slots(s, v_now);
      s := dibs._handle_due_slots(s, array(
        select k from unnest(slots) as k where k <= coalesce(s.end_at, 'infinity') order by k), v_now);
      s := dibs._set_next_slot(s, upcoming[1], upcoming, v_now);
    end if;
    answer := 'ok';
  exception when others then
    s := dibs._retry_tick_later(v_old, sqlerrm, v_now);
    answer := 'troubled';
  end;
  perform dibs._save_schedule(s);
  fired := s.fired - v_old.fired;
  skipped := s.skipped - v_old.skipped;
  missed := s.missed - v_old.missed;
end
$$;

comment on function dibs.fire is
'Worker protocol: make the jobs of the due slots of a cron schedule, and store its next slots. `slots`: all slots after
the `after` that `run_schedules` returned, up to its `until` or to now; `upcoming`: the ones that follow; `trouble`: why
the client cannot read the expression. Answers `ok`; `stale` if the schedule has another revision or is being changed,
because another process was faster or somebody changed it (nothing was done); `troubled` if the job was refused or
`trouble` was given: the slot stays, and is tried again after 10 seconds.';

create or replace function dibs.trigger(name text, force boolean default false, out job_id uuid, out answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  s dibs.schedule;
  v_fired_before bigint;
begin
  perform dibs._check_isolation('trigger');
  s := dibs._record_run_outcomes(dibs._lock_schedule(trigger.name), v_now);
  if not coalesce(force, false) and s.overlap in ('skip', 'queue') and dibs._has_open_run(s.id) then
    answer := 'skipped';
  else
    if s.overlap = 'cancel' then
      perform dibs._cancel_open_runs(s.id, format('schedule %L was triggered', s.name));
    end if;
    v_fired_before := s.fired;
    s := dibs._enqueue_slots(s, array[v_now], true, v_now);
    if s.fired > v_fired_before then
      answer := 'triggered';
      job_id := s.last_job;
    else
      answer := 'duplicate';
    end if;
  end if;
  s := dibs._plan_after_run(s, v_now);
  perform dibs._save_schedule(s);
  perform dibs._audit_if_acting('trigger', s.job ->> 'queue', detail => jsonb_build_object('schedule', s.name));
end
$$;

comment on function dibs.trigger is
'Make a job of a schedule now, even while it is paused. Its slots do not change. Answers `triggered` and the id of the
job; `skipped` if a run has not ended yet and the overlap policy is skip or queue (`force` overrides that); `duplicate`
if its dedup key is taken.';
