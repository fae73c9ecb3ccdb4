-- What was asked and what happened: written once, partitioned by the day in the id, dropped by the day.
-- The columns of fixed width come first, so that no row is padded.

-- What a batch may say of one job. An option's name and type stand here, and a column of dibs.job keeps what has to be
-- kept of it.
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
comment on type dibs.job_request is 'The options of a job, as `enqueue_many` reads them; body is base64.';

create type dibs.enqueued as (
  job_id uuid,
  outcome text
);
comment on type dibs.enqueued is 'What `enqueue` answers. A type with a name is known; a row without one is described again for each call.';

create type dibs.batch_needs as (
  jobs bigint,
  ids bigint,
  options bigint,
  keys bigint,
  groups bigint,
  resources bigint,
  queues text[],
  is_sharded boolean,
  is_bounded boolean,
  is_awaited boolean
);
comment on type dibs.batch_needs is
'How many jobs of a batch have an id, any option, a dedup key, a group or resources; what its queues are; and whether a full queue takes it,
too (is_awaited).';

-- An element for each job of the batch; null where there is nothing to say of any. `same` is the job that is there
-- already, `aside` are queues that take what comes behind all others.
create type dibs.batch as (
  ids uuid[],
  same uuid[],
  hashes bytea[],
  outcomes text[],
  aside integer[]
);
comment on type dibs.batch is 'What was found out about a batch of jobs before it is inserted.';

-- Ids and due times grow, so the pages of these keys are filled nearly to the brim: splitting them early would only log half-empty pages.
-- The few per cent left are for those who commit out of order.

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
comment on table dibs.job is 'What was asked: payload and options. Only edit and move change a row.';
comment on column dibs.job.size is 'How many bytes its payload and headers have as they are sent out; null if they are few.';
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
comment on table dibs.attempt is 'What happened: one row for each ended run. Insert only.';
comment on column dibs.attempt.xact is 'The transaction that ended the run; `roll_up` finds by it what is new.';
comment on column dibs.attempt.outcome is 'How the run ended; null if it succeeded, as most do: that takes no room.';
create index attempt_xact_idx on dibs.attempt using brin (xact) with (autosummarize = on);
create table dibs.attempt_default partition of dibs.attempt default;

create table dibs.follow_up (
  id uuid not null constraint follow_up_pkey primary key,
  parent uuid not null
);
comment on table dibs.follow_up is 'Which job a follow-up was enqueued by, with its completion.';
create index follow_up_parent_idx on dibs.follow_up (parent, id);

-- How a job counts against the concurrency of its group. A job that a group's limit let start counts until its run ends. In strict
-- order, that is with a concurrency of 1, nothing of the group starts before the job has ended for good, so it goes on
-- counting while it waits for a limit.
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
'The place in its group and the units of limits that a run held. `waits` is its job, if that is ready again.';

-- A job has one ticket, and the table its ticket sits in is its state. These tables are hot: narrow, without foreign
-- keys, and vacuumed early.

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
comment on table dibs.ready is 'Tickets waiting for a worker, now or later.';
create index ready_claim_idx on dibs.ready (queue_id, priority, due_at, id) with (fillfactor = 98) where group_key is null;
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
'Tickets waiting for a unit of a limit, or for a worker that runs their kind. n counts them, so that what came since the last look is found.';
comment on column dibs.blocked.kind is 'Of a parked ticket: its kind, which a worker that claimed it does not run.';
comment on column dibs.blocked.again_at is 'Of a parked ticket: when it is offered to everyone again.';
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
'Kinds of which jobs are parked, or were a moment ago: a worker looks here first, and nearly always finds nothing. A hint.';

-- Nothing but the key is indexed, so a heartbeat is a HOT update; fillfactor leaves it room.
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
comment on table dibs.lease is 'Tickets held by a worker: token, expiry, progress.';
comment on column dibs.lease.own_lease is
'How long the next lease lasts where the job''s own policy says so, and not the queue''s.';
comment on column dibs.lease.cancel is 'Why its end was asked for, if it was.';
comment on column dibs.lease.group_key is 'The group: a hash of the queue''s id and the group''s name.';
comment on column dibs.lease.group_hold is
'How the job counts against the concurrency of its group; null for `none`, which takes no room in this hot table.';
comment on column dibs.lease.limit_ids is 'The limits it holds units of; limit_units says how many of each.';

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
comment on table dibs.dead is 'Tickets of jobs that ended badly and can come back.';
create index dead_queue_idx on dibs.dead (queue_id, ended_at, id) include (state);

-- NOTIFY takes a lock of the whole cluster at commit, so only one committer of a queue at a time rings. The trigger is
-- deferred so that the bell is locked at the end: locked on insert, a long transaction would silence the queue for
-- everyone.
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

comment on function dibs._ring is 'Ring the bell for a queue, unless another committer is ringing it at that moment.';

create constraint trigger ready_ring after insert on dibs.ready
deferrable initially deferred for each row when (new.ring) execute function dibs._ring();
