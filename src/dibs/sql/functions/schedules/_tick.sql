-- One tick of one schedule, and the deletion of old runs.

create or replace function dibs._plan_after_run(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
begin
  if s.rule = 'fixed_delay' and s.next_scheduled is null and s.ended_at is null and s.retired_at is null
    and not dibs._has_open_run(s.id)
  then
    return dibs._set_next_slot(s, coalesce((
      select max(r.ended_at) from dibs.schedule_run as r where r.schedule_id = s.id), at) + s.every, '{}', at);
  end if;
  return s;
end
$$;

comment on function dibs._plan_after_run is
'Set the next slot of a fixed-delay schedule whose run has ended: `every` after that end. To be called after each
_record_run_outcomes: no tick looks at a schedule that has neither a next slot nor an open run.';

create or replace function dibs._handle_due_rate_slots(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
declare
  v_last constant timestamptz := dibs._next_rate_slot(s.anchor, s.every, least(at, s.end_at)) - s.every;
  v_per_grace constant bigint := ceil(extract(epoch from s.grace) / extract(epoch from s.every));
  -- Slots before this one, perhaps millions, are neither on time nor among the newest `catch_up`.
  v_first constant timestamptz := greatest(s.next_scheduled, v_last - s.every * (s.catch_up + v_per_grace));
begin
  s.missed := s.missed
    + round(extract(epoch from v_first - s.next_scheduled) / extract(epoch from s.every))::bigint;
  s := dibs._handle_due_slots(s, array(select g from generate_series(v_first, v_last, s.every) as g), at);
  return dibs._set_next_slot(s, v_last + s.every, '{}', at);
end
$$;

comment on function dibs._handle_due_rate_slots is
'Decide about all due slots of a fixed rate, and set the next one. Slots that can only be missed are counted, and not
listed one by one.';

create or replace function dibs._tick_schedule(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
begin
  s := dibs._record_run_outcomes(s, at);
  if s.retired_at is not null or dibs._waits_for_retry(s, at) then
    return s;
  end if;
  s := dibs._enqueue_held_slots(s, at);
  s := dibs._plan_after_run(s, at);
  if s.paused_at is not null or s.rule = 'cron' then  -- A client reads cron, and answers with `fire`.
    return s;
  end if;
  if s.next_scheduled is null or s.next_scheduled > at then
    s.tick_at := s.next_scheduled;  -- It was earlier if the last try had failed.
    return s;
  end if;
  if s.rule = 'fixed_rate' then
    return dibs._handle_due_rate_slots(s, at);
  end if;
  s := dibs._handle_due_slots(s, array[s.next_scheduled], at);
  if s.rule = 'fixed_delay' and dibs._has_open_run(s.id) then
    s.next_scheduled := null;  -- _plan_after_run sets it when the run has ended.
    s.tick_at := null;
    return s;
  end if;
  return dibs._set_next_slot(s, case s.rule when 'once' then null else at + s.every end, '{}', at);
end
$$;

comment on function dibs._tick_schedule is
'Do one tick of a schedule: record how its runs ended, enqueue a held slot, and handle the slots that are due. Cron
slots are left to `fire`.';

create or replace function dibs._retry_tick_later(s dibs.schedule, error text, at timestamptz) returns dibs.schedule
language plpgsql immutable
as $$
begin
  s.status_message := 'the slot could not be fired: ' || dibs._clip_error(error);
  -- A slot that comes earlier is not delayed by the error.
  s.tick_at := least(at + interval '10 seconds', case when s.tick_at > at then s.tick_at end);
  return s;
end
$$;

comment on function dibs._retry_tick_later is
'Note an error, and tick the schedule again after 10 seconds. `s` is the row before the failed tick, so that its slots
are kept.';

create or replace function dibs._waits_for_retry(s dibs.schedule, at timestamptz) returns boolean
language sql immutable
-- Otherwise `tick_at` is the next slot, is null, or has come.
return coalesce(s.tick_at > at and s.tick_at is distinct from s.next_scheduled, false);

comment on function dibs._waits_for_retry is
'True if the last try to fire a slot has failed, and the next one is still to come.';

create or replace function dibs._delete_old_schedule_runs() returns void
language sql volatile
begin atomic
  delete from dibs.schedule_run as r where r.id = any (array(
    select o.id from dibs.schedule as s join dibs.schedule_run as o on o.schedule_id = s.id
    where o.ended_at < dibs.now() - interval '8 days' limit 10000 for update of o skip locked));
end;

comment on function dibs._delete_old_schedule_runs is
'Delete runs that ended more than 8 days ago, up to 10,000. Runs that others have locked are left.';
