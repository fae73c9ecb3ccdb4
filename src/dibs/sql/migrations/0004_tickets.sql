-- A job has one ticket, and the table its ticket sits in is its state.
-- These tables are hot: narrow, without foreign keys, and vacuumed early. own_lease is how long the next lease lasts
-- where the job's own policy says so, and not the queue's. lane is the group's, found by a hash of queue and name. turn is what
-- a ticket took of its lane's turns: 0 nothing, 1 one of several, 2 the only one (strict order). slots is what it holds of limits: the
-- number of a limit and how many of its units, again and again.

create table dibs.ready (
  id uuid not null constraint ready_pkey primary key,
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
  lane uuid,
  cost integer
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);

comment on table dibs.ready is 'Tickets waiting for a worker, now or later.';
create index ready_claim_idx on dibs.ready (queue_id, priority, due_at, id) where lane is null;
create index ready_lane_idx on dibs.ready (queue_id, lane, priority, due_at, id) where lane is not null;

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
  lane uuid,
  cost integer,
  turn smallint not null default 0,
  limit_id integer not null default 0,
  units integer not null default 1
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);

alter sequence dibs.blocked_n_seq owned by dibs.blocked.n;
comment on table dibs.blocked is 'Tickets waiting for a slot of a limit. n counts them, so that what came since the last look is found.';
create index blocked_limit_idx on dibs.blocked (limit_id, (10 - priority), due_at, id);
create index blocked_n_idx on dibs.blocked (limit_id, n);

-- Nothing but the key is indexed, so a heartbeat is a HOT update; fillfactor leaves it room. cancel is why its end was
-- asked for, if it was.
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
  lane uuid,
  cost integer,
  turn smallint not null default 0,
  slots integer[]
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);

comment on table dibs.lease is 'Tickets held by a worker: token, expiry, progress.';

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

comment on table dibs.dead is 'Tickets of jobs that ended badly and can be redriven.';
create index dead_queue_idx on dibs.dead (queue_id, ended_at);

-- A hash, not the key itself: a unique violation prints what it stores.
create table dibs.fingerprint (
  hash bytea not null constraint fingerprint_pkey primary key,
  id uuid not null
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);

comment on table dibs.fingerprint is 'Live dedup keys, hashed.';

-- Where claims may start scanning; written by full sweeps, read by fresh connections.
create table dibs.floor_hint (
  queue_id integer not null,
  swept_at timestamptz not null,
  took interval not null,
  due_us bigint[] not null,
  ids uuid[] not null
);

comment on table dibs.floor_hint is 'Where a fresh connection starts scanning. Insert only.';
create index floor_hint_newest_idx on dibs.floor_hint (queue_id, swept_at desc);

-- What a connection remembers of a queue between claims, kept in its session setting dibs.floor_<queue>:
-- for each priority from 0 to 10 where to start scanning, and when to look back below that again.
create type dibs.floor as (
  due_us bigint[],
  ids uuid[],
  sweep_at bigint,
  sweep_took bigint,
  near_at bigint,
  near_step integer
);
