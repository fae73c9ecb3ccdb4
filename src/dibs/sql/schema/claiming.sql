-- The types of a claim, its hints, and the lock that every claim holds.

create type dibs.claimed as (
  id uuid,
  token uuid,
  queue text,
  kind text,
  payload jsonb,
  body bytea,
  content_type text,
  headers jsonb,
  priority smallint,
  run integer,
  attempt smallint,
  max_attempts integer,
  losses smallint,
  due_at timestamptz,
  deadline timestamptz,
  claimed_at timestamptz,
  lease_until timestamptz
);
comment on type dibs.claimed is 'A job as a claim hands it out.';

create type dibs.claim_request as (
  token uuid,
  worker bigint,
  lease interval,
  at timestamptz
);
comment on type dibs.claim_request is
'The token of a claim, its worker, its own lease (null: as the policy says), and the time by which it decides which jobs
are due (at).';

create type dibs.taken_batch as (
  queue dibs.queue,
  tickets dibs.ready[],
  group_holds dibs.group_hold[],
  queue_units dibs.held_units,
  job_units dibs.held_units[],
  at timestamptz
);
comment on type dibs.taken_batch is
'Tickets that a claim took from one queue, in the order in which it hands them out. group_holds: what each of them holds
of its group''s concurrency. job_units: its units of limits of kinds and resources. Both are null if no ticket holds
any. queue_units: the units of the queue''s own limit, the same for each ticket. at: when they were taken.';

create type dibs.floor as (
  priorities smallint[],
  due_us bigint[],
  ids uuid[],
  high_us bigint[],
  sweep_at bigint,
  sweep_took bigint,
  near_at bigint,
  near_step integer,
  reuse_until bigint,
  look_back bigint
);
comment on type dibs.floor is
'The floors of one queue, a hint that each connection remembers for itself. For each of its priorities it has the place
(due_us, ids) from which the connection scans. In a queue served newest first the place is the low end of a hole, and
high_us its high end; otherwise high_us is 0. sweep_at and near_at: when the next sweep and the next near look-back are
due. sweep_took: the duration of the last sweep. near_step: how deep the next near look-back is, from 0 to 5. Until
reuse_until a claim of one job may start at the floor and leave it as it is. look_back: how far below the floor a scan
starts; 0 when it is remembered. All times are microseconds since 1970, and durations are microseconds.';

create type dibs.floor_place as (
  due_us bigint,
  id uuid
);
comment on type dibs.floor_place is
'A place in the order in which tickets of one priority are claimed: by due time, then by id.';

create type dibs.queue_scan as (
  queue dibs.queue,
  floor dibs.floor,
  next_floor dibs.floor,
  allowed integer,
  reservation dibs.queue_reservation
);
comment on type dibs.queue_scan is
'The state of a claim in one queue: the floor from which it scans; the floor of the next claim (next_floor); how many
jobs it may still take (allowed); its reservation of the queue''s own limit.';

create table dibs.floor_hint (
  what text not null,
  queue_id integer not null,
  swept_at timestamptz not null,
  took interval not null,
  floor dibs.floor not null
);
comment on table dibs.floor_hint is
'Floors for connections that remember none, written by expensive sweeps. Rows are only inserted; the upkeep deletes old
ones.';
create index floor_hint_newest_idx on dibs.floor_hint (what, queue_id, swept_at desc);

create table dibs.queue_priority (
  queue_id integer not null,
  priority smallint not null
);
comment on table dibs.queue_priority is
'The priorities that jobs of a queue have had, besides the queue''s own. It has no unique key, so that producers never
wait for each other; a pair may be there twice.';
create index queue_priority_idx on dibs.queue_priority (queue_id, priority);

create table dibs.claim_lock (n integer not null constraint claim_lock_pkey primary key);
comment on table dibs.claim_lock is
'Has no rows. Every claim names it, and so holds it in the weakest lock mode until its transaction ends. A transaction
that locks it exclusively waits for the claims in flight.';
