-- One tick of one schedule, and the deletion of old runs.

create or replace function dibs._plan_after_run(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
begin
  if s.rule = 'fixed_delay' and s.next_scheduled is null and s.ended_at is null and s.retired_at is null
    and not dibs._has_open_run(s.id)
  then
    return dibs._set_next_slot(s, s.every + coalesce((
      select max(r.ended_at) from dibs.schedule_run as r where r.schedule_id = s.id), at), '{}', at);
  end if;
  return s;
end
$$;

comment on function dibs._plan_after_run is
'Set the next slot of a fixed-delay schedule whose run has ended: `every` after that end. Call it after
_record_run_outcomes, because a tick looks only at schedules that are due or have open runs.';

create or replace function dibs._tick_schedule(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
declare
  v_last timestamptz;
  v_first timestamptz;
begin
  s := dibs._record_run_outcomes(s, at);
  if s.retired_at is not null then
    return s;
  end if;
  s := dibs._enqueue_held_slots(s, at);
  s := dibs._plan_after_run(s, at);
  if s.paused_at is not null or s.rule = 'cron' or s.next_scheduled is null or s.tick_at > at then
    return s;
  end if;
  if s.next_scheduled > at then  -- Ticked early, to try a held slot again that had failed to fire.
    s.tick_at := s.next_scheduled;
    return s;
  end if;
  if s.rule = 'fixed_rate' then
    -- List only the slots that the catch-up policy can still want, and count the earlier ones as missed.
    v_last := dibs._next_rate_slot(s.anchor, s.every, at) - s.every;
    v_first := greatest(s.next_scheduled, v_last - s.every
      * (s.catch_up + ceil(extract(epoch from s.grace) / extract(epoch from s.every))));
    s := dibs._handle_due_slots(s, array(select g from generate_series(v_first, v_last, s.every) as g),
      round(extract(epoch from v_first - s.next_scheduled) / extract(epoch from s.every))::bigint, at);
    return dibs._set_next_slot(s, v_last + s.every, '{}', at);
  end if;
  s := dibs._handle_due_slots(s, array[s.next_scheduled], 0, at);
  if s.rule = 'fixed_delay' and dibs._has_open_run(s.id) then
    s.next_scheduled := null;  -- _plan_after_run sets it when the run has ended.
    s.tick_at := null;
    return s;
  end if;
  return dibs._set_next_slot(s, case when s.rule <> 'once' then at + s.every end, '{}', at);
end
$$;

comment on function dibs._tick_schedule is
'Do one tick of a schedule: record how its runs ended, fire held slots, and, unless it is cron, fire the slots that are
due now.';

create or replace function dibs._retry_tick_later(s dibs.schedule, error text, at timestamptz) returns dibs.schedule
language plpgsql immutable
as $$
begin
  s.status_message := 'the slot could not be fired: ' || dibs._clip_error(error);
  s.tick_at := at + interval '10 seconds';
  return s;
end
$$;

comment on function dibs._retry_tick_later is
'Keep a slot that could not fire: note the error, and tick the schedule again after 10 seconds.';

create or replace function dibs._delete_old_schedule_runs() returns void
language sql volatile
begin atomic
  delete from dibs.schedule_run as r using dibs.schedule as s
  where r.schedule_id = s.id and r.ended_at < dibs.now() - interval '8 days';
end;

comment on function dibs._delete_old_schedule_runs is 'Delete runs that ended more than 8 days ago.';
