-- Queues: the policy of each, under a small number that tickets carry instead of its name.

create type dibs.backoff_shape as (
  kind text,
  delays interval[],
  factor double precision,
  cap interval,
  jitter double precision
);

-- PostgreSQL compares a year as 360 days.
create domain dibs.backoff as dibs.backoff_shape
  constraint backoff_kind_known check (
    value is null or coalesce((value).kind in ('constant', 'list', 'exponential'), false))
  constraint backoff_delays_sane check (
    value is null or coalesce(
      cardinality((value).delays) between 1 and 100
      and interval '0' <= all ((value).delays) and interval '365 days' >= all ((value).delays), false))
  constraint backoff_factor_sane check ((value).factor between 1 and 100)
  constraint backoff_cap_sane check ((value).cap between interval '0' and interval '365 days')
  constraint backoff_jitter_sane check ((value).jitter between 0 and 1);

create table dibs.setting (
  one boolean not null default true
    constraint setting_pkey primary key
    constraint setting_one_row check (one),
  strict boolean not null default false,
  confined boolean not null default false,
  stat_minutes interval not null default interval '2 days',
  stat_hours interval not null default interval '1 year',
  error_retention interval not null default interval '1 month',
  audit_retention interval not null default interval '400 days',
  secret bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
  constraint setting_stat_minutes_range check (stat_minutes between interval '2 hours' and interval '365 days'),
  constraint setting_stat_hours_range check (stat_hours between interval '8 days' and interval '10 years'),
  constraint setting_error_retention_range check (error_retention between interval '1 hour' and interval '10 years'),
  constraint setting_audit_retention_range check (audit_retention between interval '30 days' and interval '100 years')
);
comment on table dibs.setting is 'Settings of the whole install: one row.';
comment on column dibs.setting.secret is
'The key that seals what a session remembers about how full a queue is. Only dibs can read it, so nobody else can forge
a seal.';
insert into dibs.setting default values;

create function dibs._is_confined() returns boolean
language sql stable
begin atomic
  select s.confined from dibs.setting as s;
end;

comment on function dibs._is_confined is
'True if some role is confined, so that verbs have to check who may use a queue.';

-- Each field is a column of dibs.queue with the same name. A setting whose column may be null can be set to null.
create type dibs.queue_policy as (
  priority smallint,
  lease interval,
  lease_growth double precision,
  lease_cap interval,
  max_attempts integer,
  max_losses integer,
  backoff jsonb,
  ttl interval,
  payload_limit integer,
  history text,
  retention interval,
  history_retention interval,
  ring boolean,
  shards smallint,
  shard_lease interval,
  max_depth integer,
  max_age interval,
  when_full text,
  newest_first boolean,
  noisy_share double precision
);
comment on type dibs.queue_policy is
'The settings of a queue, as `set_queue` takes them and the view `queues` shows them.';

create table dibs.queue (
  id integer generated always as identity constraint queue_pkey primary key,
  name text not null constraint queue_name_key unique,
  paused_at timestamptz,
  created_at timestamptz not null default dibs.now(),
  priority smallint not null default 5,
  lease interval not null default interval '30 seconds',
  lease_growth double precision not null default 1,
  lease_cap interval not null default interval '12 hours',
  max_attempts integer not null default 5,
  max_losses integer not null default 3,
  backoff dibs.backoff not null
    default row('exponential', array[interval '1 second'], 2, interval '1 hour', 0.1),
  ttl interval default interval '1 day',
  payload_limit integer not null default 256000000,
  history text not null default 'all',
  retention interval not null default interval '1 month',
  history_retention interval not null default interval '1 month',
  history_since timestamptz not null default dibs.now(),
  ring boolean not null default true,
  max_depth integer,
  max_age interval,
  when_full text not null default 'refuse',
  newest_first boolean not null default false,
  noisy_share double precision,
  shards smallint,
  shard_lease interval not null default interval '15 seconds',
  shard_of integer,
  shard smallint,
  has_groups boolean not null default false,
  has_group_policy boolean not null default false,
  has_limit boolean not null default false,
  has_job_limits boolean not null default false,
  has_large boolean not null default false,
  is_confined boolean not null default dibs._is_confined(),
  constraint queue_name_shape check (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}(#[0-9]{1,3})?$'),
  constraint queue_priority_range check (priority between -100 and 100),
  constraint queue_lease_range check (
    lease between interval '100 milliseconds' and interval '7 days'),
  constraint queue_lease_growth_range check (lease_growth between 1 and 100),
  constraint queue_lease_cap_range check (
    lease_cap between interval '100 milliseconds' and interval '7 days'),
  constraint queue_lease_within_cap check (lease <= lease_cap),
  constraint queue_max_attempts_range check (max_attempts between 1 and 10000),
  constraint queue_max_losses_range check (max_losses between 1 and 10000),
  constraint queue_ttl_range check (ttl > interval '0' and ttl <= interval '10 years'),
  constraint queue_payload_limit_range check (payload_limit between 1 and 256000000),
  constraint queue_history_known check (history in ('all', 'failures', 'none')),
  constraint queue_max_depth_range check (max_depth between 1 and 100000000),
  constraint queue_max_age_range check (max_age between interval '1 second' and interval '10 years'),
  constraint queue_when_full_known check (when_full in ('refuse', 'sideline')),
  constraint queue_noisy_share_range check (noisy_share > 0 and noisy_share < 1),
  constraint queue_shards_range check (shards between 1 and 256),
  constraint queue_shard_lease_range check (shard_lease between interval '1 second' and interval '1 hour'),
  constraint queue_shard_named check ((name like '%#%') = (shard_of is not null)),
  constraint queue_retention_range check (
    retention between interval '1 day' and interval '10 years'),
  constraint queue_history_retention_range check (
    history_retention between interval '1 day' and interval '10 years')
);
comment on table dibs.queue is 'Queues: the policy and switches of each, under a small number.';
comment on column dibs.queue.history_since is 'Since when the history has been kept under its present settings.';
comment on column dibs.queue.has_groups is
'True once a job of the queue has had a group. Without groups a claim skips them.';
comment on column dibs.queue.has_group_policy is 'True if a policy is set for its groups.';
comment on column dibs.queue.has_limit is
'True if the queue has a limit or a rate, which a claim checks before it looks at jobs.';
comment on column dibs.queue.has_job_limits is
'True once a job of the queue has named a resource. A claim sets it in its own copy of the row if a kind has a limit,
too.';
comment on column dibs.queue.has_large is
'True once a job of the queue was so large that claims have to add up bytes. A very large claim sets it in its own copy
of the row.';
comment on column dibs.queue.is_confined is 'True if some role is confined, so that verbs check who may use the queue.';
create index queue_shard_of_idx on dibs.queue (shard_of) where shard_of is not null;
comment on column dibs.queue.shard_of is 'The queue that this row is a shard of; `shard` is its number.';
-- For enqueue: a statement with these conditions finds the row through this index and does not evaluate them.
create index queue_ordinary_idx on dibs.queue (name)
where shard_of is null and not is_confined and coalesce(shards, 1) = 1 and num_nonnulls(max_depth, max_age) = 0;

-- Keep a row with the defaults above: it is what queue_settings compares a queue with.
create table dibs.default_policy (policy jsonb not null);
comment on table dibs.default_policy is 'The row of a new queue before anything is set: one row.';
with made as (insert into dibs.queue (id, name) overriding system value values (0, 'default') returning queue.*)
insert into dibs.default_policy (policy) select to_jsonb(m) from made as m;
delete from dibs.queue;

create table dibs.bell (
  queue_id integer not null constraint bell_pkey primary key
);
comment on table dibs.bell is
'A row for each queue, locked by the transaction that notifies workers of the queue. Never updated, so a lock leaves no
dead row.';

create function dibs._add_bell() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into dibs.bell (queue_id) values (new.id) on conflict (queue_id) do nothing;
  -- A transaction whose snapshot is older than a `confine` does not see that queues are checked now. This lock raises
  -- 40001 for it.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from dibs.setting as s for share;
  end if;
  return null;
end
$$;

comment on function dibs._add_bell is
'Trigger: add the bell of a new queue. A queue made in a snapshot older than the last change of a setting raises
40001.';

create trigger queue_bell after insert on dibs.queue for each row execute function dibs._add_bell();

create type dibs.ticket_count as (
  queue_id integer,
  state text,
  jobs double precision,
  is_cut boolean,
  since timestamptz,
  priority smallint,
  group_key uuid
);
comment on type dibs.ticket_count is
'A number of jobs of a queue in a state, of one priority or group if these are not null. `is_cut` is true if the
counting stopped at its bound; `since` is when the oldest running one was claimed.';
