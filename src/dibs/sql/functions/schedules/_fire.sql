-- Slots become jobs, and the outcome of those jobs becomes the health of the schedule.

create or replace function dibs._slot_jobs(s dibs.schedule, slots timestamptz[], is_trigger boolean) returns jsonb
language sql stable
begin atomic
  -- The jitter is a hash of name and slot, so that every worker computes the same due time.
  select coalesce(jsonb_agg('{"history": "all"}'::jsonb || s.job
    || case when s.on_failure = 'next' then '{"max_attempts": 1}' else '{}' end::jsonb
    || jsonb_build_object(
      'due_at', k.slot + case when is_trigger then interval '0' else s.jitter
        * (abs(hashtextextended(s.name || dibs._micros(k.slot), 0) % 1000000) / 1000000.0::double precision) end,
      'headers', coalesce(nullif(s.job -> 'headers', 'null'), '{}')
        -- The time as in JSON, because a cast to text depends on the DateStyle of the session.
        || jsonb_build_object('dibs-schedule', s.name,
          'dibs-slot', replace(to_jsonb(k.slot at time zone 'UTC') #>> '{}', 'T', ' ') || 'Z'))
    order by k.n), '[]')
  from unnest(slots) with ordinality as k (slot, n);
end;

comment on function dibs._slot_jobs is
'Return one job for each slot of a schedule, as a batch for enqueue_many. A triggered job has no jitter.';

create or replace function dibs._enqueue_slots(s dibs.schedule, slots timestamptz[], is_trigger boolean, at timestamptz)
returns dibs.schedule
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_new_slots constant timestamptz[] := array(
    select k from unnest(slots) as k
    where is_trigger or not exists (
      select from dibs.schedule_run as r where r.schedule_id = s.id and r.slot = k and not r.triggered) order by k);
  v_made integer;
  v_last_slot timestamptz;
  v_last_job uuid;
begin
  with run as (
    insert into dibs.schedule_run (id, schedule_id, slot, fired_at, triggered)
    -- `item` is the position of a job in the batch, from 1.
    select e.id, s.id, v_new_slots[e.item], at, is_trigger
    from dibs._enqueue_batch(
      jobs => dibs._slot_jobs(s, v_new_slots, is_trigger), bodies => null, fresh => false, guarded => false) as e
    where e.outcome <> 'duplicate'
    returning id, slot
  )
  select count(*), max(r.slot), (array_agg(r.id order by r.slot desc))[1]
  into v_made, v_last_slot, v_last_job from run as r;
  s.fired := s.fired + v_made;
  s.skipped := s.skipped + cardinality(slots) - v_made;
  s.last_job := coalesce(v_last_job, s.last_job);
  if not is_trigger then
    s.last_slot := greatest(s.last_slot, v_last_slot);
  end if;
  return s;
end
$$;

comment on function dibs._enqueue_slots is
'Enqueue the job of a schedule for each of these slots, and record a run for each job. A slot counts as skipped if it
has a run already, or if its job is a duplicate. A trigger always gets a new run.';

create or replace function dibs._has_open_run(schedule_id integer) returns boolean
language sql volatile
return exists (
  select from dibs.schedule_run as r where r.schedule_id = _has_open_run.schedule_id and r.ended_at is null);

comment on function dibs._has_open_run is
'True if a run of the schedule has not ended, as far as _record_run_outcomes has seen.';

create or replace function dibs._cancel_open_runs(schedule_id integer, reason text) returns void
language plpgsql volatile
as $$
begin
  perform dibs._cancel_batch(array(
    select r.id from dibs.schedule_run as r
    where r.schedule_id = _cancel_open_runs.schedule_id and r.ended_at is null), reason, guarded => false);
end
$$;

comment on function dibs._cancel_open_runs is 'Cancel the jobs of a schedule that have not ended.';

create or replace function dibs._look_up_open_runs(schedule_id integer, at timestamptz)
returns table (
  id uuid, failures_before integer, failures_now integer, outcome text, reason text, error text,
  last_attempt timestamptz, duration interval, ended_at timestamptz)
language sql stable
begin atomic
  -- One statement has one snapshot, in which a ticket is in exactly one table, or in none if its job succeeded.
  select run.id, run.failures,
    case
      when dead.state = 'cancelled' then run.failures  -- a cancel is no failure
      -- `charged` of a lease counts the attempt that is running, which has not failed.
      else coalesce(ready.charged, blocked.charged, lease.charged - 1, dead.charged, run.failures) end,
    case
      when coalesce(ready.id, blocked.id, lease.id) is not null then null
      when dead.id is not null then dead.state
      when job.id is not null then 'succeeded'
      else 'unknown' end,
    split_part(dead.reason, E'\n', 1), last.error, greatest(last.claimed_at, lease.claimed_at),
    last.ended_at - last.claimed_at, coalesce(dead.ended_at, last.ended_at, at)
  from (
    select x.id, x.slot, x.failures from dibs.schedule_run as x
    where x.schedule_id = _look_up_open_runs.schedule_id and x.ended_at is null order by x.slot limit 2000) as run
  left join dibs.ready on ready.id = run.id
  left join dibs.blocked on blocked.id = run.id
  left join dibs.lease on lease.id = run.id
  left join dibs.dead on dead.id = run.id
  left join lateral (select j.id from dibs.job as j where j.id = run.id offset 0) as job on true
  left join lateral (
    select a.claimed_at, a.ended_at, split_part(a.error, E'\n', 1) as error
    from dibs.attempt as a where a.id = run.id order by a.run desc limit 1) as last on true
  order by coalesce(dead.ended_at, last.ended_at, at), run.slot;
end;

comment on function dibs._look_up_open_runs is
'Look up the jobs of up to 2,000 open runs of a schedule, in the order in which they ended: how many attempts have
failed, by the last tick and now; the outcome, null while the job goes on; and the last attempt.';

create or replace function dibs._record_run_outcomes(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  r record;
begin
  for r in select o.* from dibs._look_up_open_runs(s.id, at) as o loop
    s.last_attempt := greatest(s.last_attempt, r.last_attempt);
    if r.outcome = 'succeeded' then
      s.failed_attempts := 0;
      s.failed_runs := 0;
      s.succeeded := s.succeeded + 1;
      s.last_success := greatest(s.last_success, r.ended_at);
      s.last_duration := r.duration;
      s.total_duration := s.total_duration + coalesce(r.duration, interval '0');
      s.status_message := null;
    elsif r.failures_now > r.failures_before then
      s.failed_attempts := s.failed_attempts + r.failures_now - r.failures_before;
      s.status_message := coalesce(r.error, s.status_message);
    end if;
    if r.outcome in ('failed', 'exhausted', 'expired') then
      s.failed_runs := s.failed_runs + 1;
      s.status_message := format('the last run ended as %s: %s', r.outcome, r.reason);
      if s.failed_runs >= s.pause_after and s.paused_at is null then
        s.paused_at := at;
        s.pause_reason := format('%s runs in a row have failed', s.failed_runs);
      end if;
    end if;
    if r.outcome is not null then
      update dibs.schedule_run as x
      set failures = greatest(r.failures_now, x.failures), outcome = r.outcome, ended_at = r.ended_at,
        duration = r.duration
      where x.id = r.id;
    elsif r.failures_now > r.failures_before then
      update dibs.schedule_run as x set failures = r.failures_now where x.id = r.id;
    end if;
  end loop;
  return s;
end
$$;

comment on function dibs._record_run_outcomes is
'Update the health of a schedule by its open runs. Close the runs whose jobs have ended, and pause the schedule if
`pause_after` runs in a row have failed.';

create or replace function dibs._handle_due_slots(s dibs.schedule, slots timestamptz[], at timestamptz)
returns dibs.schedule
language plpgsql volatile
as $$
declare
  v_on_time_from constant timestamptz := at - s.grace;
  -- The slots that are on time and the newest `catch_up` ones. Rules that count from the last run miss none.
  v_wanted constant timestamptz[] := array(
    select k.slot from unnest(slots) with ordinality as k (slot, n)
    where k.slot >= v_on_time_from or k.n > cardinality(slots) - s.catch_up or s.rule in ('interval', 'fixed_delay')
    order by k.slot);
begin
  s.handled_until := greatest(s.handled_until, slots[cardinality(slots)]);
  s.missed := s.missed + cardinality(slots) - cardinality(v_wanted);
  if v_wanted = '{}' then
    return s;
  end if;
  if s.overlap = 'allow' then
    return dibs._enqueue_slots(s, v_wanted, false, at);
  end if;
  if s.overlap = 'cancel' then
    perform dibs._cancel_open_runs(s.id, format('the next run of schedule %L is due', s.name));
    s := dibs._record_run_outcomes(s, at);
    s := dibs._drop_held_slots(s);
    s.held := v_wanted[cardinality(v_wanted):];
    s.skipped := s.skipped + cardinality(v_wanted) - 1;
  elsif s.held <> '{}' or s.overlap = 'skip' and dibs._has_open_run(s.id) then
    s.skipped := s.skipped + cardinality(v_wanted);
  else
    -- _enqueue_held_slots enqueues the first held slot below, unless a run is open.
    s.held := case
      when v_wanted[1] < v_on_time_from then v_wanted  -- late slots: all of them, one after the other
      when s.overlap = 'queue' and not dibs._has_open_run(s.id) then v_wanted[1:2]  -- one fires, one waits for it
      else v_wanted[1:1] end;
    s.skipped := s.skipped + cardinality(v_wanted) - cardinality(s.held);
  end if;
  return dibs._enqueue_held_slots(s, at);
end
$$;

comment on function dibs._handle_due_slots is
'Decide about slots that are due, in order of time. Slots that came too late for the catch-up policy are missed; the
others are enqueued, held or skipped by the overlap policy.';

create or replace function dibs._enqueue_held_slots(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
begin
  while s.held <> '{}' and s.paused_at is null and not dibs._has_open_run(s.id) loop
    s := dibs._enqueue_slots(s, s.held[1:1], false, at);
    s.held := s.held[2:];
  end loop;
  return s;
end
$$;

comment on function dibs._enqueue_held_slots is
'Enqueue the first held slot, unless a run is open or the schedule is paused. If its job is a duplicate, no run opens:
then go on with the next held slot.';

create or replace function dibs._drop_held_slots(s dibs.schedule) returns dibs.schedule
language plpgsql immutable
as $$
begin
  s.skipped := s.skipped + cardinality(s.held);
  s.held := '{}';
  return s;
end
$$;

comment on function dibs._drop_held_slots is 'Forget the held slots, and count them as skipped.';
