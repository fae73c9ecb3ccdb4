-- The rule and the job of a schedule: lookup, checks, and the arithmetic of slots.

create or replace function dibs._lock_schedule(name text) returns dibs.schedule
language plpgsql volatile
as $$
declare
  s dibs.schedule;
begin
  select x.* into s from dibs.schedule as x
  where x.name = _lock_schedule.name and dibs._may_see_queue(x.job ->> 'queue')
  for update;
  if not found then
    perform dibs._refuse_unknown('DI050', format('there is no schedule %L', name), name,
      array(select x.name from dibs.schedule as x where dibs._may_see_queue(x.job ->> 'queue')),
      'a schedule exists from dibs.set_schedule, or once a worker of the app that declares it has started');
  end if;
  return s;
end
$$;

comment on function dibs._lock_schedule is
'Lock the schedule with this name and return its row. Raises DI050 if there is none.';

create or replace function dibs._next_rate_slot(anchor timestamptz, every interval, after timestamptz)
returns timestamptz
language sql stable strict
return dibs._from_micros(dibs._micros(anchor) + dibs._micros('epoch'::timestamptz + every)
  * greatest(floor((dibs._micros(after) - dibs._micros(anchor))::numeric
    / dibs._micros('epoch'::timestamptz + every)) + 1, 0)::bigint);

comment on function dibs._next_rate_slot is
'Return the first slot after `after` of a fixed rate: the slots are anchor + n * every, with n from 0.';

create or replace function dibs._check_time_zone(zone text) returns void
language plpgsql stable
as $$
declare
  v_prefix constant text := split_part(zone, '/', 1) || '/';  -- Europe/
  v_place text;
begin
  if zone <> 'UTC' and not exists (select from pg_timezone_names as z where z.name = zone) then
    -- Compare only the zones of the continent, and without its name, which would make all of them look similar.
    v_place := dibs._nearest_word(substr(zone, length(v_prefix) + 1), array(
      select substr(z.name, length(v_prefix) + 1) from pg_timezone_names as z
      where starts_with(z.name, v_prefix)));
    perform dibs._refuse_unknown('DI051', format('there is no time zone %L', zone), zone,
      array[v_prefix || v_place], 'give an IANA name such as Europe/Berlin');
  end if;
end
$$;

comment on function dibs._check_time_zone is
'Refuse a time zone that does not exist. The error names the most similar one of the same continent, if there is any.';

create or replace function dibs._check_schedule_rule(rule jsonb) returns void
language plpgsql stable
as $$
declare
  v_all_kinds constant text[] := '{cron,interval,fixed_rate,fixed_delay,once}'::text[];
  v_settings constant text[] := v_all_kinds
    || '{zone,start_at,end_at,jitter,overlap,catch_up,grace,on_failure,pause_after}'::text[];
  v_null_setting text;
  v_given_kinds text[];
  v_every interval;
begin
  if jsonb_typeof(rule) is distinct from 'object' then
    raise exception using errcode = 'DI051', message = 'a schedule''s rule is a JSON object',
      hint = 'pass {"cron": "0 3 * * *", "zone": "Europe/Berlin"} or {"interval": 60}';
  end if;
  perform dibs._check_json_keys('DI051', 'schedule', 'setting', rule, v_settings);
  -- A kind of rule that is null counts as left out.
  v_given_kinds := array(select k from unnest(v_all_kinds) as k where rule -> k <> 'null');
  if cardinality(v_given_kinds) > 1 then
    raise exception using errcode = 'DI051',
      message = format('a schedule has one rule; it got %s', array_to_string(v_given_kinds, ' and ')),
      hint = 'give one of ' || array_to_string(v_all_kinds, ', ');
  end if;
  v_null_setting := (select p.key from jsonb_each(rule) as p
    where p.value = 'null' and p.key <> all (v_all_kinds || '{start_at,end_at,pause_after}'::text[]) limit 1);
  if v_null_setting is not null then
    raise exception using errcode = 'DI051', message = format('a schedule''s %s cannot be null', v_null_setting),
      hint = 'leave it out to keep it as it is; of the settings only start_at, end_at and pause_after may be null';
  end if;
  if rule ->> 'cron' !~ '^\s*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|\S+(\s+\S+){4,5})\s*$' then
    raise exception using errcode = 'DI051', message = format('%L is not a cron expression', rule ->> 'cron'),
      hint = 'write five fields (minute, hour, day, month, weekday), six with seconds in front, or @hourly, @daily,'
        ' @weekly, @monthly, @yearly';
  end if;
  if v_given_kinds[1] in ('interval', 'fixed_rate', 'fixed_delay') then
    v_every := (rule ->> v_given_kinds[1])::interval;
    if extract(year from v_every) <> 0 or extract(month from v_every) <> 0 then
      raise exception using errcode = 'DI051',
        message = format('%s is %s, but months differ in length', v_given_kinds[1], rule ->> v_given_kinds[1]),
        hint = 'give days, hours or seconds; for months use cron';
    end if;
  end if;
  perform dibs._check_time_zone(rule ->> 'zone');
end
$$;

comment on function dibs._check_schedule_rule is
'Refuse an invalid rule: more than one kind of rule, unknown settings, null where it is not allowed, months in a
duration, an unknown zone, or a malformed cron expression. A rule without any kind passes. The constraints of the table
check the ranges.';

create or replace function dibs._check_schedule_times(times timestamptz[]) returns void
language plpgsql stable
as $$
declare
  v_wrong timestamptz := (
    select t from unnest(times) as t where t not between timestamptz '0001-01-02' and timestamptz '9000-01-01' limit 1);
begin
  if v_wrong is not null then
    raise exception using errcode = 'DI051', message = format('%s is no time that a schedule can have', v_wrong),
      hint = 'give times from the year 1 to the year 9000, or none';
  end if;
end
$$;

comment on function dibs._check_schedule_times is
'Refuse times that a client could not read. One such time would make the list of all schedules unreadable.';

create or replace function dibs._check_schedule_job(job jsonb) returns void
language plpgsql stable
as $$
declare
  v_forbidden text;
begin
  if jsonb_typeof(job) is distinct from 'object'
    or coalesce(job ->> 'queue', '') = '' or coalesce(job ->> 'kind', '') = '' then
    raise exception using errcode = 'DI051', message = 'a schedule''s job is a JSON object with a queue and a kind',
      hint = 'pass {"queue": "reports", "kind": "nightly", "payload": {}}';
  end if;
  perform dibs._check_json('the job of a schedule', job, 'schedule');
  perform dibs._read_batch(jsonb_build_array(job));
  v_forbidden := (select k from jsonb_object_keys(job) as k where k in ('id', 'delay', 'due_at', 'deadline') limit 1);
  if v_forbidden is not null then
    raise exception using errcode = 'DI051', message = format('the job of a schedule cannot have %s', v_forbidden),
      hint = 'the schedule says when each of its jobs is due; use ttl to let them expire';
  end if;
end
$$;

comment on function dibs._check_schedule_job is
'Refuse a job that cannot be made for each slot: one without a queue or kind, or with its own id or due time.';

create or replace function dibs._rule_columns(rule jsonb) returns jsonb
language sql stable
return (rule - '{cron,interval,fixed_rate,fixed_delay,once}'::text[])
  || case when rule ->> 'catch_up' in ('none', 'last')
       then jsonb_build_object('catch_up', (rule ->> 'catch_up' = 'last')::integer) else '{}' end
  || coalesce((
    select jsonb_build_object('rule', k, 'cron', null, 'every', null, 'once', null)
      || case when k in ('cron', 'once') then jsonb_build_object(k, rule -> k)
           else jsonb_build_object('every',
             make_interval(secs => extract(epoch from (rule ->> k)::interval)::double precision)) end
    from unnest('{cron,interval,fixed_rate,fixed_delay,once}'::text[]) as k where rule -> k <> 'null'), '{}');

comment on function dibs._rule_columns is
'Translate a rule into columns of dibs.schedule: {"interval": 60} becomes rule = interval, every = 60 seconds.';
