-- Jobs and attempts are written once, partitioned by the day in the id, and dropped by the day. Columns of fixed width
-- come first, so that rows need no padding.

-- An option of a job is a field here, and a column of dibs.job if it must be kept.
create type dibs.job_request as (
  queue text,
  kind text,
  payload jsonb,
  body text,
  content_type text,
  headers jsonb,
  id uuid,
  priority integer,
  delay interval,
  due_at timestamptz,
  ttl interval,
  deadline timestamptz,
  lease interval,
  lease_growth double precision,
  lease_cap interval,
  max_attempts integer,
  backoff dibs.backoff,
  history text,
  dedup_key text,
  dedup boolean,
  dedup_scope text,
  dedup_for interval,
  on_duplicate text,
  shard_key text,
  "group" text,
  cost integer,
  resources jsonb
);
comment on type dibs.job_request is 'The options of a job, as `enqueue_many` reads them; `body` is base64.';

create type dibs.enqueued as (
  job_id uuid,
  outcome text
);
comment on type dibs.enqueued is
'The answer of `enqueue`. It has a name because PostgreSQL describes the columns of a plain record again in each call.';

create type dibs.batch_needs as (
  jobs bigint,           -- the number of jobs
  ids bigint,            -- the number of jobs with an id
  options bigint,        -- … with any option beside queue, kind, payload and id
  keys bigint,           -- … with a dedup key
  groups bigint,         -- … with a group
  resources bigint,      -- … with resources
  queues text[],
  is_sharded boolean,    -- one of the queues is split into shards
  is_bounded boolean,    -- one of the queues has a max_depth or max_age
  is_follow_up boolean   -- the batch belongs to a completion; a full queue takes it, too
);
comment on type dibs.batch_needs is 'The options that the jobs of a batch use, and their queues.';

-- Each array has one element for each job of the batch, or is null.
create type dibs.prepared_batch as (
  ids uuid[],                   -- the id of the job, if it was made before the job is inserted
  duplicate_of uuid[],          -- the job that exists already and takes the place of this one, or null
  hashes bytea[],               -- the hash of its dedup key, or null
  outcomes text[]               -- `replaced` or `sidelined`, or null
);
comment on type dibs.prepared_batch is 'The decisions about a batch of jobs that are made before it is inserted.';

-- Ids and due times grow, so the pages of these keys are filled nearly completely: splitting them earlier would only
-- leave half-empty pages. The 2 % left are for transactions that commit out of order.

create table dibs.job (
  id uuid not null,
  due_at timestamptz not null,
  queue_id integer not null,
  priority smallint not null,
  kind text not null,
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  fingerprint bytea,
  deadline timestamptz,
  ttl interval,
  lease interval,
  lease_growth double precision,
  lease_cap interval,
  max_attempts integer,
  backoff dibs.backoff,
  history text,
  group_name text,
  cost integer,
  resources jsonb,
  dedup_scope text,
  size integer,
  constraint job_pkey primary key (id) with (fillfactor = 98)
) partition by range (id);
comment on table dibs.job is 'Jobs: payload and options. Only edit and move change a row.';
comment on column dibs.job.size is 'The bytes of payload and headers, as clients get them; null up to 6,400.';
create table dibs.job_default partition of dibs.job default;

create type dibs.outcome as enum (
  'succeeded', 'failed', 'lost', 'snoozed', 'released', 'cancelled');

create table dibs.attempt (
  id uuid not null,
  token uuid not null,
  claimed_at timestamptz not null,
  ended_at timestamptz not null,
  xact bigint not null default txid_current(),
  queue_id integer not null,
  run integer not null,
  outcome dibs.outcome,
  worker bigint,
  result jsonb,
  error text,
  progress jsonb,
  constraint attempt_pkey primary key (id, run)
) partition by range (id);
comment on table dibs.attempt is 'The record of each run that ended. Insert only.';
comment on column dibs.attempt.xact is 'The transaction that ended the run; `roll_up` finds new rows by it.';
comment on column dibs.attempt.outcome is 'How the run ended. Null if it succeeded: most do, and null takes no space.';
create index attempt_xact_idx on dibs.attempt using brin (xact) with (autosummarize = on);
create table dibs.attempt_default partition of dibs.attempt default;

create table dibs.follow_up (
  id uuid not null constraint follow_up_pkey primary key,
  parent uuid not null
);
comment on table dibs.follow_up is 'The job (parent) whose completion enqueued a follow-up job (id).';
create index follow_up_parent_idx on dibs.follow_up (parent, id);

-- How a job counts against the concurrency of its group: from its claim until its run ends. A group with a concurrency
-- of 1 is in strict order: no job of it starts before the one that started last has ended for good. So that job goes
-- on counting while it waits for a limit.
create type dibs.group_hold as enum (
  'none',       -- not counted: the job has no group, or its group has no concurrency
  'shared',     -- one of several that may run at a time
  'exclusive'   -- the only one of its group that may run
);

create type dibs.holding as (
  queue_id integer,
  group_key uuid,
  group_hold dibs.group_hold,
  waits uuid,
  limit_ids integer[],
  limit_units integer[]
);
comment on type dibs.holding is
'The place in its group and the units of limits that a run holds. `waits` is the id of its job if that becomes ready
again, otherwise null.';

-- A job has one ticket, and the table that the ticket sits in is the job's state. These tables are hot: narrow, without
-- foreign keys, and vacuumed early.

create table dibs.ready (
  id uuid not null constraint ready_pkey primary key with (fillfactor = 98),
  due_at timestamptz not null,
  expire_at timestamptz not null,
  queue_id integer not null,
  run integer not null,
  charged smallint not null,
  losses smallint not null,
  priority smallint not null,
  ring boolean not null,
  own_lease interval,
  history text,
  fingerprint bytea,
  group_key uuid,
  cost integer
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
comment on table dibs.ready is 'Tickets of jobs that wait for a worker, now or from `due_at` on.';
create index ready_claim_idx on dibs.ready (queue_id, priority, due_at, id) with (fillfactor = 98)
  where group_key is null;
create index ready_group_idx on dibs.ready (queue_id, group_key, priority, due_at, id) where group_key is not null;

create sequence dibs.blocked_n_seq;
create table dibs.blocked (
  id uuid not null constraint blocked_pkey primary key,
  n bigint not null default nextval('dibs.blocked_n_seq'),
  due_at timestamptz not null,
  expire_at timestamptz not null,
  queue_id integer not null,
  run integer not null,
  charged smallint not null,
  losses smallint not null,
  priority smallint not null,
  own_lease interval,
  history text,
  waits_for text not null,
  fingerprint bytea,
  group_key uuid,
  cost integer,
  group_hold dibs.group_hold not null default 'none',
  limit_id integer not null default 0,
  units integer not null default 1,
  kind text,
  again_at timestamptz
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.blocked_n_seq owned by dibs.blocked.n;
comment on table dibs.blocked is
'Tickets of jobs that wait for a unit of a limit, or for a worker that runs their kind. `n` numbers them in the order of
arrival, so that a claim finds the new ones.';
comment on column dibs.blocked.kind is
'The kind of a parked job: the worker that claimed it does not run this kind. Null for other jobs.';
comment on column dibs.blocked.again_at is 'The time at which a parked job is offered to all workers again.';
create index blocked_limit_idx on dibs.blocked (limit_id, (-priority), due_at, id);
create index blocked_n_idx on dibs.blocked (limit_id, n);
create index blocked_queue_idx on dibs.blocked (queue_id);
create index blocked_group_idx on dibs.blocked (queue_id, group_key) where group_key is not null;
create index blocked_kind_idx on dibs.blocked (queue_id, kind, (-priority), due_at, id) where kind is not null;
create index blocked_again_idx on dibs.blocked (again_at) where kind is not null;

create table dibs.parked_kind (
  queue_id integer not null,
  kind text not null,
  constraint parked_kind_pkey primary key (queue_id, kind)
);
comment on table dibs.parked_kind is
'Kinds of which jobs are parked, or were shortly before: a hint. A worker looks here first, and nearly always finds
nothing.';

-- Only the primary key is indexed, so a heartbeat is a HOT update. The fillfactor leaves room for it.
create table dibs.lease (
  id uuid not null constraint lease_pkey primary key,
  token uuid not null,
  due_at timestamptz not null,
  expire_at timestamptz not null,
  claimed_at timestamptz not null,
  lease_until timestamptz not null,
  queue_id integer not null,
  run integer not null,
  charged smallint not null,
  losses smallint not null,
  priority smallint not null,
  cancel text,
  own_lease interval,
  history text,
  worker bigint,
  progress jsonb,
  fingerprint bytea,
  group_key uuid,
  cost integer,
  group_hold dibs.group_hold,
  limit_ids integer[],
  limit_units integer[]
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
comment on table dibs.lease is 'Tickets of running jobs: who holds them, until when, and how far they have come.';
comment on column dibs.lease.own_lease is
'The length of the next lease if the job has its own policy; null if the policy of its queue applies.';
comment on column dibs.lease.cancel is 'The reason of a request to cancel the job; null without one.';
comment on column dibs.lease.group_key is 'The group: a hash of the queue''s id and the group''s name.';
comment on column dibs.lease.group_hold is
'How the job counts against the concurrency of its group. Null stands for `none`: it takes no space in this hot table.';
comment on column dibs.lease.limit_ids is 'The limits of which the run holds units; limit_units are their numbers.';

create table dibs.dead (
  id uuid not null constraint dead_pkey primary key,
  due_at timestamptz not null,
  ended_at timestamptz not null,
  queue_id integer not null,
  run integer not null,
  charged smallint not null,
  losses smallint not null,
  priority smallint not null,
  history text,
  state text not null,
  reason text not null,
  fingerprint bytea,
  constraint dead_state_known check (state in ('failed', 'exhausted', 'expired', 'cancelled'))
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table dibs.dead is 'Tickets of jobs that ended without success and can be retried.';
create index dead_queue_idx on dibs.dead (queue_id, ended_at, id) include (state);

-- NOTIFY takes a lock of the whole cluster at commit, so only one transaction of a queue at a time notifies. The
-- trigger is deferred, so that the row of `bell` is locked just before commit: locked on insert, a long transaction
-- would keep all others from notifying.
create function dibs._ring() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('dibs', b.queue_id::text)
  from (select b.queue_id from dibs.bell as b where b.queue_id = new.queue_id for update skip locked) as b;
  return null;
end
$$;

comment on function dibs._ring is 'Notify the workers of a queue, unless another transaction is about to do so.';

create constraint trigger ready_ring after insert on dibs.ready
deferrable initially deferred for each row when (new.ring) execute function dibs._ring();
