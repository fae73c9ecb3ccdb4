-- What the verbs on schedules share. Nobody but the owner calls these.
-- Whoever fires, settles or changes a schedule holds the lock of its row, and takes it before any other lock.

create or replace function dibs.schedule_named(name text) returns dibs.schedule
language plpgsql volatile
as $$
declare
  s dibs.schedule;
begin
  select x.* into s from dibs.schedule as x where x.name = schedule_named.name for update;
  if not found then
    raise exception using errcode = 'DI050', message = format('there is no schedule %L', name),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(name, array(select x.name from dibs.schedule as x))) || '? ', '')
        || 'a schedule exists from dibs.set_schedule, or once a worker of the app that declares it has started';
  end if;
  return s;
end
$$;

comment on function dibs.schedule_named is 'The schedule of a name, locked; raises DI050 when there is none.';

create or replace function dibs.rate_slot(anchor timestamptz, every interval, after timestamptz) returns timestamptz
language sql stable strict
return dibs.from_micros(dibs.micros(anchor) + dibs.micros('epoch'::timestamptz + every)
  * greatest(floor((dibs.micros(after) - dibs.micros(anchor))::numeric / dibs.micros('epoch'::timestamptz + every)) + 1, 0)::bigint);

comment on function dibs.rate_slot is 'The first slot after a time, of those a fixed rate makes from its anchor on.';

create or replace function dibs.check_rule(rule jsonb) returns void
language plpgsql stable
as $$
declare
  v_rules constant text[] := '{cron,interval,fixed_rate,fixed_delay,once}'::text[];
  v_names constant text[] := v_rules || '{zone,start_at,end_at,jitter,overlap,catch_up,grace,on_failure,pause_after}'::text[];
  v_unknown text;
  v_given text[];
begin
  if jsonb_typeof(rule) is distinct from 'object' then
    raise exception using errcode = 'DI051', message = 'a schedule''s rule is a JSON object',
      hint = 'pass {"cron": "0 3 * * *", "zone": "Europe/Berlin"} or {"interval": 60}';
  end if;
  v_unknown := (select k from jsonb_object_keys(rule) as k where k <> all (v_names) limit 1);
  if v_unknown is not null then
    raise exception using errcode = 'DI051', message = format('a schedule has no setting %L', v_unknown),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(v_unknown, v_names)) || '? ', '')
        || 'the settings are ' || array_to_string(v_names, ', ');
  end if;
  v_given := array(select k from unnest(v_rules) as k where rule -> k <> 'null');
  if cardinality(v_given) > 1 then
    raise exception using errcode = 'DI051',
      message = format('a schedule has one rule; it got %s', array_to_string(v_given, ' and ')),
      hint = 'give one of ' || array_to_string(v_rules, ', ');
  end if;
  v_unknown := (select p.key from jsonb_each(rule) as p
    where p.value = 'null' and p.key <> all (v_rules || '{start_at,end_at,pause_after}'::text[]) limit 1);
  if v_unknown is not null then
    raise exception using errcode = 'DI051', message = format('a schedule''s %s cannot be null', v_unknown),
      hint = 'leave it out to keep it as it is; only start_at, end_at and pause_after may be null, for none';
  end if;
  if rule ->> 'cron' !~ '^\s*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|\S+(\s+\S+){4,5})\s*$' then
    raise exception using errcode = 'DI051', message = format('%L is not a cron expression', rule ->> 'cron'),
      hint = 'write five fields (minute, hour, day, month, weekday), six with seconds in front, or @hourly, @daily, @weekly, @monthly, @yearly';
  end if;
  if v_given && '{interval,fixed_rate,fixed_delay}'
    and (select extract(year from e.every) <> 0 or extract(month from e.every) <> 0
         from (select (rule ->> v_given[1])::interval as every) as e) then
    raise exception using errcode = 'DI051', message = format('%s is %s, but months differ in length', v_given[1], rule ->> v_given[1]),
      hint = 'give days, hours or seconds; for months use cron';
  end if;
  if rule ->> 'zone' <> 'UTC' and not exists (select from pg_timezone_names as z where z.name = rule ->> 'zone') then
    raise exception using errcode = 'DI051', message = format('there is no time zone %L', rule ->> 'zone'),
      hint = coalesce('did you mean ' || quote_literal(split_part(rule ->> 'zone', '/', 1) || '/' || dibs.nearest(
        split_part(rule ->> 'zone', '/', 2), array(
          select split_part(z.name, '/', 2) from pg_timezone_names as z
          where split_part(z.name, '/', 1) = split_part(rule ->> 'zone', '/', 1)))) || '? ', '')
        || 'give an IANA name such as Europe/Berlin';
  end if;
end
$$;

comment on function dibs.check_rule is 'Refuse a schedule''s rule that makes no sense, with a sentence that says why.';

create or replace function dibs.check_schedule_job(job jsonb) returns void
language plpgsql immutable
as $$
declare
  v_own text;
begin
  if jsonb_typeof(job) is distinct from 'object' or coalesce(job ->> 'queue', '') = '' or coalesce(job ->> 'kind', '') = '' then
    raise exception using errcode = 'DI051', message = 'a schedule''s job is a JSON object with a queue and a kind',
      hint = 'pass {"queue": "reports", "kind": "nightly", "payload": {}}';
  end if;
  perform dibs.ask(jsonb_build_array(job));
  v_own := (select k from jsonb_object_keys(job) as k where k in ('id', 'delay', 'due_at', 'deadline') limit 1);
  if v_own is not null then
    raise exception using errcode = 'DI051', message = format('the job of a schedule cannot have %s', v_own),
      hint = 'the schedule says when each of its jobs is due; use ttl to let them expire';
  end if;
end
$$;

comment on function dibs.check_schedule_job is 'Refuse a job that a schedule cannot make again and again.';

create or replace function dibs.rule_columns(rule jsonb) returns jsonb
language sql immutable
return (rule - '{interval,fixed_rate,fixed_delay}'::text[])
  || case when rule ->> 'catch_up' in ('none', 'last')
       then jsonb_build_object('catch_up', (rule ->> 'catch_up' = 'last')::integer) else '{}' end
  || coalesce((
    select jsonb_build_object('rule', k, 'cron', null, 'every', null, 'once', null)
      || case when k in ('cron', 'once') then jsonb_build_object(k, rule -> k)
           else jsonb_build_object('every', make_interval(secs => extract(epoch from (rule ->> k)::interval)::double precision)) end
    from unnest('{cron,interval,fixed_rate,fixed_delay,once}'::text[]) as k where rule -> k <> 'null'), '{}');

comment on function dibs.rule_columns is 'A rule as the columns of dibs.schedule.';

create or replace function dibs.planned(s dibs.schedule, next timestamptz, upcoming timestamptz[], at timestamptz)
returns dibs.schedule
language plpgsql immutable
as $$
begin
  s.next_scheduled := case when next <= coalesce(s.end_at, 'infinity') then next end;
  s.upcoming := array(select u from unnest(upcoming) as u where u <= coalesce(s.end_at, 'infinity') order by u);
  s.tick_at := s.next_scheduled;
  s.ended_at := case when s.next_scheduled is null then at end;
  return s;
end
$$;

comment on function dibs.planned is 'A schedule with its next slot, or ended if that is past its end or there is none.';

create or replace function dibs.plan_afresh(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql stable
as $$
begin
  s.anchor := coalesce(s.start_at, at);
  s.handled_until := greatest(at, s.start_at - interval '1 microsecond');
  s.held := '{}';
  if s.rule = 'cron' then
    -- Only a client can read cron: the next tick asks it to.
    s.next_scheduled := null;
    s.upcoming := '{}';
    s.ended_at := null;
    s.tick_at := at;
    return s;
  end if;
  return dibs.planned(s, case s.rule
    when 'once' then s.once
    when 'fixed_rate' then dibs.rate_slot(s.anchor, s.every, s.handled_until)
    else greatest(at, coalesce(s.start_at, at + s.every)) end, '{}', at);
end
$$;

comment on function dibs.plan_afresh is 'A schedule planned anew from now on: what was due before is no longer awaited.';

create or replace function dibs.save_schedule(s dibs.schedule) returns void
language sql volatile
begin atomic
  update dibs.schedule as x
  set (revision, app, declared, retired_at, job, rule, cron, every, once, zone, start_at, end_at, jitter, overlap, catch_up,
      grace, on_failure, pause_after, anchor, handled_until, next_scheduled, tick_at, upcoming, held, paused_at, pause_reason,
      ended_at, last_slot, last_job, last_attempt, last_success, failed_attempts, failed_runs, fired, succeeded, skipped,
      missed, last_duration, total_duration, status_message)
    = (s.revision + 1, s.app, s.declared, s.retired_at, s.job, s.rule, s.cron, s.every, s.once, s.zone, s.start_at, s.end_at,
      s.jitter, s.overlap, s.catch_up, s.grace, s.on_failure, s.pause_after, s.anchor, s.handled_until, s.next_scheduled,
      s.tick_at, s.upcoming, s.held, s.paused_at, s.pause_reason, s.ended_at, s.last_slot, s.last_job, s.last_attempt,
      s.last_success, s.failed_attempts, s.failed_runs, s.fired, s.succeeded, s.skipped, s.missed, s.last_duration,
      s.total_duration, s.status_message)
  where x.id = s.id;
end;

comment on function dibs.save_schedule is 'Write a schedule back under a new revision; its row is locked by us.';

create or replace function dibs.put_schedule(
  name text, rule jsonb, job jsonb, app text, declared jsonb, at timestamptz)
returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_default constant jsonb := '{"zone": "UTC", "jitter": "0", "overlap": "skip", "catch_up": 1, "grace": "1 minute",
    "on_failure": "retry", "start_at": null, "end_at": null, "pause_after": null}'::jsonb;
  s dibs.schedule;
  v_old dibs.schedule;
begin
  perform dibs.check_rule(put_schedule.rule);
  select x.* into v_old from dibs.schedule as x where x.name = put_schedule.name for update;
  -- What code declares is declared whole; what is set by hand changes what it names.
  s := jsonb_populate_record(v_old, case when v_old.id is null or put_schedule.declared is not null then v_default else '{}' end
    || dibs.rule_columns(put_schedule.rule));
  s.job := coalesce(put_schedule.job, s.job);
  perform dibs.check_schedule_job(s.job);
  if s.rule is null then
    raise exception using errcode = 'DI051', message = format('schedule %L has no rule yet', put_schedule.name),
      hint = 'give one of cron, interval, fixed_rate, fixed_delay, once';
  end if;
  if put_schedule.declared is not null then
    s.app := put_schedule.app;
    s.declared := put_schedule.declared;
    s.retired_at := null;
  elsif v_old.retired_at is not null then  -- Whoever sets it by hand takes it over.
    s.app := null;
    s.declared := null;
    s.retired_at := null;
  end if;
  if v_old.id is null then
    insert into dibs.schedule (name, created_at, job, rule, cron, every, once, anchor, handled_until)
    values (put_schedule.name, at, s.job, s.rule, s.cron, s.every, s.once, at, at)
    on conflict do nothing returning id, name, created_at, revision, failed_attempts, failed_runs, fired, succeeded, skipped,
      missed, total_duration
    into s.id, s.name, s.created_at, s.revision, s.failed_attempts, s.failed_runs, s.fired, s.succeeded, s.skipped, s.missed,
      s.total_duration;
    if not found then  -- Another one has just made it: change that.
      return dibs.put_schedule(put_schedule.name, put_schedule.rule, put_schedule.job, put_schedule.app, put_schedule.declared, at);
    end if;
  end if;
  if v_old.id is null or v_old.retired_at is distinct from s.retired_at
    or (s.rule, s.cron, s.every, s.once, s.zone, s.start_at, s.end_at)
      is distinct from (v_old.rule, v_old.cron, v_old.every, v_old.once, v_old.zone, v_old.start_at, v_old.end_at) then
    s := dibs.plan_afresh(s, at);
  end if;
  if v_old is not distinct from s then
    return 'unchanged';
  end if;
  perform dibs.save_schedule(s);
  return case when v_old.id is null then 'created' else 'changed' end;
end
$$;

comment on function dibs.put_schedule is 'Make or change a schedule, set by hand or declared by an app.';

create or replace function dibs.slot_jobs(s dibs.schedule, slots timestamptz[], triggered boolean) returns jsonb
language sql stable
begin atomic
  -- The jitter of a slot is drawn from its name and time, so that it is the same whoever fires it.
  select coalesce(jsonb_agg('{"history": "all"}'::jsonb || s.job
    || case when s.on_failure = 'next' then '{"max_attempts": 1}' else '{}' end::jsonb
    || jsonb_build_object(
      'due_at', k.slot + case when triggered then interval '0' else s.jitter
        * (abs(hashtextextended(s.name || dibs.micros(k.slot), 0) % 1000000) / 1000000.0::double precision) end,
      'headers', coalesce(nullif(s.job -> 'headers', 'null'), '{}')
        || jsonb_build_object('dibs-schedule', s.name, 'dibs-slot', k.slot at time zone 'UTC' || 'Z')) order by k.n), '[]')
  from unnest(slots) with ordinality as k (slot, n);
end;

comment on function dibs.slot_jobs is 'The jobs of a schedule''s slots, as enqueue_many takes them.';

create or replace function dibs.fire_slots(s dibs.schedule, slots timestamptz[], triggered boolean, at timestamptz)
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
    select e.item, e.id from dibs.enqueue_many(dibs.slot_jobs(s, v_slots, fire_slots.triggered)) as e
    where e.outcome <> 'duplicate'
  ), run as (
    insert into dibs.schedule_run (id, schedule_id, slot, fired_at, triggered)
    select m.id, s.id, v_slots[m.item], at, fire_slots.triggered from made as m
  )
  select array_agg(m.id order by m.item) into v_ids from made as m;
  s.fired := s.fired + coalesce(cardinality(v_ids), 0);
  s.skipped := s.skipped + cardinality(slots) - coalesce(cardinality(v_ids), 0);
  if v_ids is not null then
    s.last_slot := case when fire_slots.triggered then s.last_slot else greatest(s.last_slot, v_slots[cardinality(v_slots)]) end;
    s.last_job := v_ids[cardinality(v_ids)];
  end if;
  return s;
end
$$;

comment on function dibs.fire_slots is
'Enqueue a schedule''s job for each of these slots; a slot that has its job already, or whose job is a duplicate, is skipped.';

create or replace function dibs.is_open(schedule_id integer) returns boolean
language sql volatile
return exists (select from dibs.schedule_run as r where r.schedule_id = is_open.schedule_id and r.ended_at is null);

comment on function dibs.is_open is 'Whether a job of the schedule has not ended yet, as far as was looked.';

create or replace function dibs.settle_runs(s dibs.schedule, at timestamptz) returns dibs.schedule
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
      select a.claimed_at as since, a.ended_at as until, a.outcome as how, split_part(a.error, E'\n', 1) as error
      from dibs.attempt as a where a.id = o.id order by a.run desc limit 1) as h on true
    order by 10, o.slot
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

comment on function dibs.settle_runs is
'What became of a schedule''s jobs since it was last looked: its health, and whether it is paused for its failures.';

create or replace function dibs.take_slots(s dibs.schedule, slots timestamptz[], unseen bigint, at timestamptz)
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
    return dibs.fire_slots(s, v_keep, false, at);
  end if;
  if s.overlap = 'cancel' then
    perform dibs.cancel_many(array(select r.id from dibs.schedule_run as r where r.schedule_id = s.id and r.ended_at is null),
      format('the next run of schedule %L is due', s.name));
    s := dibs.settle_runs(s, at);
    s.skipped := s.skipped + cardinality(s.held) + cardinality(v_keep) - 1;
    s.held := v_keep[cardinality(v_keep):];
  elsif s.held <> '{}' or s.overlap = 'skip' and dibs.is_open(s.id) then
    s.skipped := s.skipped + cardinality(v_keep);
  else
    -- What is caught up runs one after the other; else one may run, and one wait if the policy says so.
    s.held := case when v_late then v_keep when s.overlap = 'queue' and not dibs.is_open(s.id) then v_keep[1:2] else v_keep[1:1] end;
    s.skipped := s.skipped + cardinality(v_keep) - cardinality(s.held);
  end if;
  return dibs.fire_held(s, at);
end
$$;

comment on function dibs.take_slots is
'Slots that have come: those too late for the catch-up policy are missed, the others are fired, held or skipped as the
overlap policy says.';

create or replace function dibs.fire_held(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
begin
  while s.held <> '{}' and s.paused_at is null and not dibs.is_open(s.id) loop
    s := dibs.fire_slots(s, s.held[1:1], false, at);
    s.held := s.held[2:];
  end loop;
  return s;
end
$$;

comment on function dibs.fire_held is 'Fire the slot that waited for the run before it, once that has ended.';

create or replace function dibs.tick_schedule(s dibs.schedule, at timestamptz) returns dibs.schedule
language plpgsql volatile
as $$
declare
  v_last timestamptz;
  v_first timestamptz;
begin
  s := dibs.fire_held(dibs.settle_runs(s, at), at);
  if s.rule = 'fixed_delay' and s.next_scheduled is null and s.ended_at is null and not dibs.is_open(s.id) then
    s := dibs.planned(s, coalesce((select max(r.ended_at) from dibs.schedule_run as r where r.schedule_id = s.id), at) + s.every,
      '{}', at);
  end if;
  if s.paused_at is not null or s.rule = 'cron' or s.next_scheduled is null or s.tick_at > at then
    return s;
  end if;
  if s.rule = 'fixed_rate' then
    v_last := dibs.rate_slot(s.anchor, s.every, at) - s.every;
    v_first := greatest(s.next_scheduled, v_last - s.every * (s.catch_up + ceil(extract(epoch from s.grace) / extract(epoch from s.every))));
    s := dibs.take_slots(s, array(select g from generate_series(v_first, v_last, s.every) as g),
      round(extract(epoch from v_first - s.next_scheduled) / extract(epoch from s.every))::bigint, at);
    return dibs.planned(s, v_last + s.every, '{}', at);
  end if;
  s := dibs.take_slots(s, array[s.next_scheduled], 0, at);
  if s.rule = 'fixed_delay' and dibs.is_open(s.id) then
    s.next_scheduled := null;  -- planned when the run has ended
    s.tick_at := null;
    return s;
  end if;
  return dibs.planned(s, case when s.rule <> 'once' then at + s.every end, '{}', at);
end
$$;

comment on function dibs.tick_schedule is
'One look at a schedule: what became of its jobs, what was held back, and, unless it is cron, what is due now.';

create or replace function dibs.troubled(s dibs.schedule, message text, at timestamptz) returns dibs.schedule
language sql stable
return jsonb_populate_record(s, jsonb_build_object(
  'status_message', 'the slot could not be fired: ' || message, 'tick_at', at + interval '10 seconds'));

comment on function dibs.troubled is 'A schedule whose slot could not be fired just now: its slot stays, and is tried again soon.';

create or replace function dibs.forget_runs() returns void
language sql volatile
begin atomic
  delete from dibs.schedule_run as r using dibs.schedule as s
  where r.schedule_id = s.id and r.ended_at < dibs.now() - interval '8 days';
end;

comment on function dibs.forget_runs is 'Delete the records of runs that ended more than 8 days ago.';
