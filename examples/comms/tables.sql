-- Facts: rows that are inserted and never changed. What a process is can be told from them at any time.

create table if not exists comms.policy (
  channel text primary key check (channel in ('email', 'sms')),
  max_attempts integer not null default 5 check (max_attempts between 1 and 100),
  first_delay interval not null default interval '30 seconds' check (first_delay > interval '0'),
  longest_delay interval not null default interval '1 hour' check (longest_delay > interval '0'),
  recheck interval not null default interval '1 minute' check (recheck > interval '0')
);

comment on table comms.policy is
'How often a message is tried, how long the pauses are (each twice the last), and how often a supervisor looks.';
insert into comms.policy (channel) values ('email'), ('sms') on conflict do nothing;

create table if not exists comms.send_email_task (
  send_email_task_id bigint generated always as identity primary key,
  request_key text unique,
  to_address text not null,
  subject text not null,
  body_text text,
  body_html text,
  created_at timestamptz not null default dibs.now()
);

comment on table comms.send_email_task is 'The root of a process: an e-mail that is to be sent.';

create table if not exists comms.send_email_task_scheduled (
  attempt_id bigint generated always as identity primary key,
  send_email_task_id bigint not null references comms.send_email_task,
  job_id uuid not null,
  due_at timestamptz not null,
  scheduled_at timestamptz not null default dibs.now()
);

comment on table comms.send_email_task_scheduled is 'An attempt was scheduled: a job of the channel.';
create index if not exists send_email_task_scheduled_task_idx on comms.send_email_task_scheduled (send_email_task_id);

create table if not exists comms.send_email_task_failed (
  attempt_id bigint primary key references comms.send_email_task_scheduled,
  error text not null,
  failed_at timestamptz not null default dibs.now()
);

comment on table comms.send_email_task_failed is 'An attempt failed.';

create table if not exists comms.send_email_task_succeeded (
  attempt_id bigint primary key references comms.send_email_task_scheduled,
  receipt jsonb not null,
  succeeded_at timestamptz not null default dibs.now()
);

comment on table comms.send_email_task_succeeded is 'An attempt succeeded: the provider accepted the message.';

create table if not exists comms.send_email_task_ended (
  send_email_task_id bigint primary key references comms.send_email_task,
  outcome text not null check (outcome in ('sent', 'given up')),
  reason text not null default '',
  ended_at timestamptz not null default dibs.now()
);

comment on table comms.send_email_task_ended is 'The one terminal fact of a process: its key sees to it that there is one.';

create table if not exists comms.send_sms_task (
  send_sms_task_id bigint generated always as identity primary key,
  request_key text unique,
  to_number text not null,
  body_text text not null,
  created_at timestamptz not null default dibs.now()
);

comment on table comms.send_sms_task is 'The root of a process: a text message that is to be sent.';

create table if not exists comms.send_sms_task_scheduled (
  attempt_id bigint generated always as identity primary key,
  send_sms_task_id bigint not null references comms.send_sms_task,
  job_id uuid not null,
  due_at timestamptz not null,
  scheduled_at timestamptz not null default dibs.now()
);

comment on table comms.send_sms_task_scheduled is 'An attempt was scheduled: a job of the channel.';
create index if not exists send_sms_task_scheduled_task_idx on comms.send_sms_task_scheduled (send_sms_task_id);

create table if not exists comms.send_sms_task_failed (
  attempt_id bigint primary key references comms.send_sms_task_scheduled,
  error text not null,
  failed_at timestamptz not null default dibs.now()
);

comment on table comms.send_sms_task_failed is 'An attempt failed.';

create table if not exists comms.send_sms_task_succeeded (
  attempt_id bigint primary key references comms.send_sms_task_scheduled,
  receipt jsonb not null,
  succeeded_at timestamptz not null default dibs.now()
);

comment on table comms.send_sms_task_succeeded is 'An attempt succeeded: the provider accepted the message.';

create table if not exists comms.send_sms_task_ended (
  send_sms_task_id bigint primary key references comms.send_sms_task,
  outcome text not null check (outcome in ('sent', 'given up')),
  reason text not null default '',
  ended_at timestamptz not null default dibs.now()
);

comment on table comms.send_sms_task_ended is 'The one terminal fact of a process: its key sees to it that there is one.';

create or replace function comms.id_in(payload jsonb, name text) returns bigint
language sql immutable set search_path = pg_catalog, pg_temp
return case when jsonb_typeof(payload -> name) = 'number' and payload ->> name ~ '^[0-9]{1,18}$'
  then (payload ->> name)::bigint end;

comment on function comms.id_in is 'An id in a payload; null when there is none.';

create or replace function comms.pause_after(policy comms.policy, failures integer) returns interval
language sql immutable set search_path = pg_catalog, pg_temp
return least((policy).longest_delay, (policy).first_delay * power(2, least(failures, 30) - 1));

comment on function comms.pause_after is 'How long to wait after so many failures.';
