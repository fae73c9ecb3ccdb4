-- Groups: a lane is a group's identity while it has jobs, a turn its place in the rotation.

-- What was set for a group, or for all groups of a queue without their own settings (lane zero).
create table dibs.group_policy (
  queue_id integer not null,
  lane uuid not null,
  name text,
  weight integer not null default 1,
  concurrency integer,
  rate double precision,
  burst integer,
  max_depth integer,
  max_age interval,
  constraint group_policy_pkey primary key (queue_id, lane),
  constraint group_policy_weight_range check (weight between 1 and 1000),
  constraint group_policy_concurrency_range check (concurrency between 1 and 1000000),
  constraint group_policy_rate_range check (rate > 0 and rate <= 1000000),
  constraint group_policy_burst_range check (burst between 1 and 1000000),
  constraint group_policy_max_depth_range check (max_depth between 1 and 100000000),
  constraint group_policy_max_age_range check (max_age between interval '1 second' and interval '10 years')
);
comment on table dibs.group_policy is 'Weight and limits of a group, or of all groups of a queue.';

-- Made by the first job of a group, deleted with its last. Its row is what enqueuers lock, shared, and what the one who takes
-- a turn out of the present must lock alone. concurrency is the number of turns it has: free, held, less debt. noisy: it has more than its share of what
-- runs, and is served last until its backlog is gone.
create table dibs.lane (
  id uuid not null constraint lane_pkey primary key,
  queue_id integer not null,
  weight integer not null,
  concurrency integer,
  rate double precision,
  burst integer,
  debt integer not null default 0,
  noisy boolean not null default false,
  name text not null
) with (
  fillfactor = 90,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
comment on table dibs.lane is 'A group that has jobs: its identity, weight and limits.';

-- The rotation of a queue's groups, in the order of place; one whose place lies ahead waits for its time.
-- units: how many jobs it may let run, where the group has a concurrency. base_at: no ticket of the lane is due earlier.
-- floor_*: where the last scan of one priority found its first, a hint. tat: when the group's rate has caught up.
-- freed_at: when its units became free; no claim whose clock was read before may use them, so the history shows no overlap.
-- credit: what is left of its quantum, or what it overdrew. next: the only job it may take, where the order is strict.
create sequence dibs.turn_n_seq;
create table dibs.turn (
  n bigint not null default nextval('dibs.turn_n_seq'),
  place timestamptz not null,
  lane uuid not null,
  base_at timestamptz,
  floor_at timestamptz,
  floor_id uuid,
  swept_at timestamptz,
  freed_at timestamptz,
  tat timestamptz,
  next uuid,
  queue_id integer not null,
  units integer not null default 0,
  credit integer,
  floor_level smallint,
  idle smallint not null default 0,
  is_noisy boolean not null default false,
  ping boolean not null default false,
  ring boolean not null default false
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.turn_n_seq owned by dibs.turn.n;
comment on table dibs.turn is 'The place of a group in its queue''s rotation. Insert, delete.';
create index turn_place_idx on dibs.turn (queue_id, is_noisy, place, n);
create index turn_lane_idx on dibs.turn (lane, n);

-- A turn that came back may let another worker's job run.
create constraint trigger turn_ring after insert on dibs.turn
deferrable initially deferred for each row when (new.ring) execute function dibs._ring();

-- A turn that a claim has taken, with what its lane is allowed.
create type dibs.visit as (
  lane uuid,
  n bigint,
  place timestamptz,
  base_at timestamptz,
  floor_at timestamptz,
  floor_id uuid,
  swept_at timestamptz,
  tat timestamptz,
  next uuid,
  until timestamptz,
  units integer,
  budget integer,
  keep integer,
  front boolean,
  floor_level smallint,
  idle smallint,
  is_noisy boolean,
  weight integer,
  concurrency integer,
  rate double precision,
  burst integer,
  debt integer,
  allow integer
);
