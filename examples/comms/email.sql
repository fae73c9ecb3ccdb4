-- Sending an e-mail as a process: facts, logic, effects.

-- Facts. STABLE and without effects: anybody may look, at any time, in production too.

create or replace function comms.send_email_facts(
  id bigint, out attempts integer, out failures integer, out last_failed_at timestamptz, out last_error text,
  out ended text, out attempt_id bigint, out job_id uuid, out job_state text, out stage text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select f.attempts, f.failures, f.last_failed_at, f.last_error, (
      select e.outcome from comms.send_email_task_ended as e where e.send_email_task_id = id),
    o.attempt_id, o.job_id, (dibs.status(o.job_id)).state, (select s.stage from dibs.delivery_stage(o.job_id) as s)
  from (
    select count(*)::integer as attempts, count(x.attempt_id)::integer as failures, max(x.failed_at) as last_failed_at,
      (array_agg(x.error order by x.failed_at desc) filter (where x.error is not null))[1] as last_error
    from comms.send_email_task_scheduled as s left join comms.send_email_task_failed as x on x.attempt_id = s.attempt_id
    where s.send_email_task_id = id
  ) as f
  left join lateral (
    select s.attempt_id, s.job_id from comms.send_email_task_scheduled as s
    where s.send_email_task_id = id
      and not exists (select from comms.send_email_task_failed as x where x.attempt_id = s.attempt_id)
      and not exists (select from comms.send_email_task_succeeded as y where y.attempt_id = s.attempt_id)
    order by s.attempt_id desc limit 1) as o on true;
end;

comment on function comms.send_email_facts is
'What is known of a process: its attempts and failures, how it ended, and the attempt whose outcome is outstanding with
the state of its job and how far its delivery is.';

-- Effects. Each is safe to repeat.

create or replace function comms.schedule_email(id bigint, delay interval) returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt bigint := nextval(pg_get_serial_sequence('comms.send_email_task_scheduled', 'attempt_id'));
  v_job uuid;
begin
  -- ttl: an outcome waits for its handler as long as it takes. max_attempts: crashes are not failures of the message.
  select e.job_id into v_job from dibs.enqueue('comms', 'email', jsonb_build_object(
      'task_type', 'email', 'send_email_task_id', id, 'attempt_id', v_attempt, 'on_error', 'report',
      'before_handler', 'comms.get_email_payload', 'success_handler', 'comms.record_email_success',
      'error_handler', 'comms.record_email_failure'),
    delay => delay, ttl => interval '10 years', max_attempts => 20) as e;
  insert into comms.send_email_task_scheduled (attempt_id, send_email_task_id, job_id, due_at)
  overriding system value values (v_attempt, id, v_job, dibs.now() + delay);
  return v_job;
end
$$;

comment on function comms.schedule_email is 'Schedule an attempt: its fact, and a job of the channel with its handlers.';

create or replace function comms.fail_email_attempt(attempt_id bigint, error text) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
begin atomic
  insert into comms.send_email_task_failed (attempt_id, error)
  select fail_email_attempt.attempt_id, error
  where not exists (
    select from comms.send_email_task_succeeded as s where s.attempt_id = fail_email_attempt.attempt_id)
  on conflict do nothing;
end;

comment on function comms.fail_email_attempt is 'Note that an attempt failed.';

create or replace function comms.succeed_email_attempt(id bigint, attempt_id bigint, receipt jsonb) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
begin atomic
  insert into comms.send_email_task_succeeded (attempt_id, receipt)
  values (succeed_email_attempt.attempt_id, receipt) on conflict do nothing;
  insert into comms.send_email_task_ended (send_email_task_id, outcome) values (id, 'sent') on conflict do nothing;
end;

comment on function comms.succeed_email_attempt is 'Note that an attempt succeeded, and with it the process.';

create or replace function comms.look_at_email(id bigint, delay interval) returns text
language sql volatile
set search_path = pg_catalog, pg_temp
begin atomic
  select s.outcome from dibs.supervise('comms/send_email/' || id,
    jsonb_build_object('task_type', 'db_function', 'db_function', 'comms.send_email_supervisor', 'send_email_task_id', id),
    delay, 'comms') as s;
end;

comment on function comms.look_at_email is 'Have the supervisor look at a process after a while; one look waits at most.';

-- Logic.

create or replace function comms.send_email_supervisor(payload jsonb) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint := comms.id_in(payload, 'send_email_task_id');
  v_policy comms.policy;
  v_facts record;
begin
  -- The root row first, and the facts in a separate statement, which sees what others did before us.
  perform from comms.send_email_task as t where t.send_email_task_id = v_id for update;
  if not found then
    return dibs.envelope_invalid(format('there is no send_email_task %s', coalesce(payload ->> 'send_email_task_id', 'without an id')));
  end if;
  select p.* into v_policy from comms.policy as p where p.channel = 'email';
  select f.* into v_facts from comms.send_email_facts(v_id) as f;

  -- A job that is over and told nobody: its worker died too often, or somebody cancelled it.
  if v_facts.attempt_id is not null and v_facts.job_state not in ('scheduled', 'ready', 'blocked', 'running') then
    if v_facts.stage in ('accepted', 'done') then
      perform comms.succeed_email_attempt(v_id, v_facts.attempt_id, '{}');
    else
      perform comms.fail_email_attempt(v_facts.attempt_id, format('its job ended as %s and told nobody', v_facts.job_state));
    end if;
    select f.* into v_facts from comms.send_email_facts(v_id) as f;
  end if;

  if v_facts.ended is not null then
    return dibs.envelope_ok(jsonb_build_object('status', v_facts.ended));
  end if;
  if v_facts.attempt_id is null and v_facts.failures >= v_policy.max_attempts then
    insert into comms.send_email_task_ended (send_email_task_id, outcome, reason)
    values (v_id, 'given up', v_facts.last_error) on conflict do nothing;
    return dibs.envelope_ok('{"status": "given up"}');
  end if;
  if v_facts.attempt_id is null then
    perform comms.schedule_email(v_id, case when v_facts.failures = 0 then interval '0' else
      greatest(v_facts.last_failed_at + comms.pause_after(v_policy, v_facts.failures) - dibs.now(), interval '0') end);
  end if;
  perform comms.look_at_email(v_id, v_policy.recheck);
  return dibs.envelope_ok('{"status": "waiting"}');
end
$$;

comment on function comms.send_email_supervisor is
'Look at a process and do what is to be done: schedule an attempt if none is outstanding, give up after the last one, look
again later. Safe to run at any time, any number of times.';

-- Handlers of the channel.

create or replace function comms.get_email_payload(payload jsonb) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_task record;
begin
  select t.*, exists (
      select from comms.send_email_task_failed as x where x.attempt_id = s.attempt_id) as over
  into v_task
  from comms.send_email_task_scheduled as s
  join comms.send_email_task as t on t.send_email_task_id = s.send_email_task_id
  where s.attempt_id = comms.id_in(payload, 'attempt_id');
  if v_task.send_email_task_id is null then
    return dibs.envelope_invalid('there is no such attempt');
  end if;
  if v_task.over then
    return dibs.envelope_invalid('this attempt is over; the supervisor schedules another');
  end if;
  return dibs.envelope_ok(jsonb_strip_nulls(jsonb_build_object(
    'to', v_task.to_address, 'subject', v_task.subject, 'text', v_task.body_text, 'html', v_task.body_html)));
end
$$;

comment on function comms.get_email_payload is 'The message of an attempt, as the channel email takes it.';

create or replace function comms.record_email_success(payload jsonb) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint := comms.id_in(payload -> 'original_payload', 'send_email_task_id');
begin
  perform from comms.send_email_task as t where t.send_email_task_id = v_id for update;
  perform comms.succeed_email_attempt(v_id, comms.id_in(payload -> 'original_payload', 'attempt_id'),
    coalesce(payload -> 'worker_payload', '{}'));
  perform comms.look_at_email(v_id, interval '0');
  return dibs.envelope_ok();
end
$$;

comment on function comms.record_email_success is 'Told by the channel that the provider accepted the message.';

create or replace function comms.record_email_failure(payload jsonb) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint := comms.id_in(payload -> 'original_payload', 'send_email_task_id');
begin
  perform from comms.send_email_task as t where t.send_email_task_id = v_id for update;
  perform comms.fail_email_attempt(comms.id_in(payload -> 'original_payload', 'attempt_id'), coalesce(payload ->> 'error', 'unknown'));
  perform comms.look_at_email(v_id, interval '0');
  return dibs.envelope_ok();
end
$$;

comment on function comms.record_email_failure is 'Told by the channel that the message was not sent.';

-- For applications.

create or replace function comms.kickoff_send_email(payload jsonb) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint;
begin
  if coalesce(payload ->> 'to', '') !~ '^[^@[:space:]]+@[^@[:space:]]+$' then
    return dibs.envelope_invalid('to is not an e-mail address');
  end if;
  if coalesce(payload ->> 'text', payload ->> 'html', '') = '' then
    return dibs.envelope_invalid('the e-mail has neither text nor html');
  end if;
  insert into comms.send_email_task (request_key, to_address, subject, body_text, body_html)
  values (payload ->> 'request_key', payload ->> 'to', coalesce(payload ->> 'subject', ''), payload ->> 'text', payload ->> 'html')
  on conflict (request_key) do nothing
  returning send_email_task_id into v_id;
  if v_id is null then
    select t.send_email_task_id into v_id from comms.send_email_task as t where t.request_key = payload ->> 'request_key';
  end if;
  if not exists (select from comms.send_email_task_ended as e where e.send_email_task_id = v_id) then
    perform comms.look_at_email(v_id, interval '0');
  end if;
  return dibs.envelope_ok(jsonb_build_object('send_email_task_id', v_id));
end
$$;

comment on function comms.kickoff_send_email is
'Have an e-mail sent: {"to", "subject", "text", "html", "request_key"}. With the same request_key it is the same e-mail,
however often this is called.';

create or replace function comms.is_send_email_stuck(id bigint) returns boolean
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select exists (select from comms.send_email_task as t where t.send_email_task_id = id)
    and not exists (select from comms.send_email_task_ended as e where e.send_email_task_id = id)
    and dibs.supervised('comms/send_email/' || id, 'comms') = 'none';
end;

comment on function comms.is_send_email_stuck is
'Whether a process has not ended and nobody looks at it any more. look_at_email, or kickoff_send_email with its
request_key, sets it going again.';
