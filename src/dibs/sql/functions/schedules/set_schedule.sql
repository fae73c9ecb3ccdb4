-- Creating, changing and dropping a schedule.

create or replace function dibs.set_schedule(name text, rule jsonb default '{}', job jsonb default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_answer text;
begin
  perform dibs._check_isolation('set_schedule');
  v_answer := dibs._upsert_schedule(name, rule, job, null, null, dibs.now());
  if v_answer <> 'unchanged' then
    perform dibs._audit_schedule('set_schedule', name, jsonb_build_object('rule', rule));
  end if;
  return v_answer;
end
$$;

comment on function dibs.set_schedule is
'Create a schedule, or change it while it runs: settings that are left out stay as they are. `rule` is a JSON object
with one of cron (five fields, or six with seconds in front; a dibs process must run to read it), interval, fixed_rate,
fixed_delay (durations in seconds or as intervals) and once (a time); and zone (an IANA name), start_at, end_at, jitter,
overlap (skip, queue, allow, cancel), catch_up (none, last, or a maximum), grace, on_failure (retry, next) and
pause_after. `job` is a JSON object for `enqueue_many`: queue, kind, payload and options. Answers `created`, `changed`
or `unchanged`; raises DI051 if the rule is invalid.';

create or replace function dibs.drop_schedule(name text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_id integer := (dibs._lock_schedule(name)).id;
begin
  perform dibs._audit_schedule('drop_schedule', name);
  delete from dibs.schedule_run as r where r.schedule_id = v_id;
  delete from dibs.schedule as s where s.id = v_id;
end
$$;

comment on function dibs.drop_schedule is
'Delete a schedule and the record of its runs. Jobs it has made stay. Raises DI050 if there is no schedule of that
name.';
