-- Slots become jobs.

create or replace function dibs._slot_jobs(s dibs.schedule, slots timestamptz[], triggered boolean) returns jsonb
language sql stable
begin atomic
  -- The jitter of a slot is drawn from its name and time, so that it is the same whichever worker fires it.
  select coalesce(jsonb_agg('{"history": "all"}'::jsonb || s.job
    || case when s.on_failure = 'next' then '{"max_attempts": 1}' else '{}' end::jsonb
    || jsonb_build_object(
      'due_at', k.slot + case when triggered then interval '0' else s.jitter
        * (abs(hashtextextended(s.name || dibs._micros(k.slot), 0) % 1000000) / 1000000.0::double precision) end,
      'headers', coalesce(nullif(s.job -> 'headers', 'null'), '{}')
        || jsonb_build_object('dibs-schedule', s.name, 'dibs-slot', k.slot at time zone 'UTC' || 'Z'))
    order by k.n), '[]')
  from unnest(slots) with ordinality as k (slot, n);
end;

comment on function dibs._slot_jobs is 'The jobs of a schedule''s slots, as enqueue_many takes them.';

create or replace function dibs._enqueue_slots(s dibs.schedule, slots timestamptz[], triggered boolean, at timestamptz)
returns dibs.schedule
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_ids uuid[];
  v_slots timestamptz[] := array(
    select k from unnest(slots) as k
    where triggered or not exists (
      select from dibs.schedule_run as r where r.schedule_id = s.id and r.slot = k and not r.triggered) order by k);
begin
  with made as (
    select e.item, e.id from dibs._enqueue_batch(dibs._slot_jobs(s, v_slots, _enqueue_slots.triggered), null, false, guarded => false) as e
    where e.outcome <> 'duplicate'
  ), run as (
    insert into dibs.schedule_run (id, schedule_id, slot, fired_at, triggered)
    select m.id, s.id, v_slots[m.item], at, _enqueue_slots.triggered from made as m
  )
  select array_agg(m.id order by m.item) into v_ids from made as m;
  s.fired := s.fired + coalesce(cardinality(v_ids), 0);
  s.skipped := s.skipped + cardinality(slots) - coalesce(cardinality(v_ids), 0);
  if v_ids is not null then
    s.last_slot := case when _enqueue_slots.triggered then s.last_slot
      else greatest(s.last_slot, v_slots[cardinality(v_slots)]) end;
    s.last_job := v_ids[cardinality(v_ids)];
  end if;
  return s;
end
$$;

comment on function dibs._enqueue_slots is
'Enqueue a schedule''s job for each of these slots; a slot that has its job already, or whose job is a duplicate, is
skipped.';

create or replace function dibs._has_open_run(schedule_id integer) returns boolean
language sql volatile
return exists (select from dibs.schedule_run as r where r.schedule_id = _has_open_run.schedule_id and r.ended_at is null);

comment on function dibs._has_open_run is 'Whether a job of the schedule has not ended yet, as far as was looked.';

create or replace function dibs._cancel_open_runs(schedule_id integer, reason text) returns void
language plpgsql volatile
as $$
begin
  perform dibs._cancel_batch(array(
    select r.id from dibs.schedule_run as r
    where r.schedule_id = _cancel_open_runs.schedule_id and r.ended_at is null), reason, false);
end
$$;

comment on function dibs._cancel_open_runs is 'Cancel the jobs of a schedule that have not ended yet, as far as was looked.';

create or replace function dibs._record_run_outcomes(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  r record;
begin
  -- One statement, one snapshot: a ticket is in one table or nowhere.
  for r in
    select o.id, o.failures, c.claimed_at as held_since, h.*, d.reason,
      case when w.id is not null or b.id is not null or c.id is not null then null
        when d.id is not null then d.state when j.id is not null then 'succeeded' else 'unknown' end as outcome,
      case when d.state = 'cancelled' then o.failures
        else coalesce(w.charged, b.charged, c.charged - 1, d.charged, o.failures) end as failed,
      coalesce(d.ended_at, h.until, at) as ended_at
    from (
      select x.id, x.slot, x.failures from dibs.schedule_run as x
      where x.schedule_id = s.id and x.ended_at is null order by x.slot limit 2000) as o
    left join dibs.ready as w on w.id = o.id left join dibs.blocked as b on b.id = o.id
    left join dibs.lease as c on c.id = o.id left join dibs.dead as d on d.id = o.id
    left join lateral (select j.id from dibs.job as j where j.id = o.id offset 0) as j on true
    left join lateral (
      select a.claimed_at as since, a.ended_at as until, split_part(a.error, E'\n', 1) as error
      from dibs.attempt as a where a.id = o.id order by a.run desc limit 1) as h on true
    order by ended_at, o.slot
  loop
    s.last_attempt := greatest(s.last_attempt, r.since, r.held_since);
    if r.failed > r.failures and r.outcome is distinct from 'succeeded' then
      s.failed_attempts := s.failed_attempts + r.failed - r.failures;
      s.status_message := coalesce(r.error, s.status_message);
    end if;
    if r.outcome = 'succeeded' then
      s.failed_attempts := 0;
      s.failed_runs := 0;
      s.succeeded := s.succeeded + 1;
      s.last_success := greatest(s.last_success, r.ended_at);
      s.last_duration := r.until - r.since;
      s.total_duration := s.total_duration + coalesce(r.until - r.since, interval '0');
      s.status_message := null;
    elsif r.outcome in ('failed', 'exhausted', 'expired') then
      s.failed_runs := s.failed_runs + 1;
      s.status_message := format('the last run ended as %s: %s', r.outcome, split_part(r.reason, E'\n', 1));
    end if;
    if r.outcome is not null or r.failed <> r.failures then
      update dibs.schedule_run as x
      set failures = greatest(r.failed, x.failures), outcome = r.outcome,
        ended_at = case when r.outcome is not null then r.ended_at end,
        duration = case when r.outcome is not null then r.until - r.since end
      where x.id = r.id;
    end if;
    if s.failed_runs >= s.pause_after and s.paused_at is null and r.outcome in ('failed', 'exhausted', 'expired') then
      s.paused_at := at;
      s.pause_reason := format('%s runs in a row have failed', s.failed_runs);
    end if;
  end loop;
  return s;
end
$$;

comment on function dibs._record_run_outcomes is
'What happened to a schedule''s jobs since the last look: its health, and whether it is paused for its failures.';

create or replace function dibs._handle_due_slots(s dibs.schedule, slots timestamptz[], unseen bigint, at timestamptz)
returns dibs.schedule
language plpgsql volatile
as $$
declare
  v_all boolean := s.rule in ('interval', 'fixed_delay');
  v_keep timestamptz[] := array(
    select k.slot from unnest(slots) with ordinality as k (slot, n)
    where v_all or k.slot >= at - s.grace or k.n > cardinality(slots) - s.catch_up order by k.slot);
  v_late boolean := v_keep[1] < at - s.grace;
  v_now timestamptz[] := '{}'::timestamptz[];
begin
  s.handled_until := greatest(s.handled_until, slots[cardinality(slots)]);
  s.missed := s.missed + cardinality(slots) - cardinality(v_keep) + unseen;
  if v_keep = '{}' then
    return s;
  end if;
  if s.overlap = 'allow' then
    return dibs._enqueue_slots(s, v_keep, false, at);
  end if;
  if s.overlap = 'cancel' then
    perform dibs._cancel_open_runs(s.id, format('the next run of schedule %L is due', s.name));
    s := dibs._record_run_outcomes(s, at);
    s.skipped := s.skipped + cardinality(s.held) + cardinality(v_keep) - 1;
    s.held := v_keep[cardinality(v_keep):];
  elsif s.held <> '{}' or s.overlap = 'skip' and dibs._has_open_run(s.id) then
    s.skipped := s.skipped + cardinality(v_keep);
  else
    -- What is caught up runs one after the other; else one may run, and one wait if the policy says so.
    s.held := case when v_late then v_keep when s.overlap = 'queue' and not dibs._has_open_run(s.id) then v_keep[1:2]
      else v_keep[1:1] end;
    s.skipped := s.skipped + cardinality(v_keep) - cardinality(s.held);
  end if;
  return dibs._enqueue_held_slots(s, at);
end
$$;

comment on function dibs._handle_due_slots is
'Slots that have come: those too late for the catch-up policy are missed, the others are fired, held or skipped as the
overlap policy says.';

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

comment on function dibs._enqueue_held_slots is 'Fire the slot that waited for the run before it, once that has ended.';
