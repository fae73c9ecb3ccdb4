-- What a claim hands out, and what a connection remembers between claims.

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

create type dibs.claim_order as (
  token uuid,
  worker bigint,
  lease interval,
  at timestamptz
);
comment on type dibs.claim_order is 'What all parts of a claim share: its token, its worker, the lease asked for, and its clock.';

create type dibs.taken_batch as (
  queue dibs.queue,
  tickets dibs.ready[],
  group_holds dibs.group_hold[],
  queue_units dibs.held_units,
  job_units dibs.held_units[],
  at timestamptz
);
comment on type dibs.taken_batch is
'What a claim took from one queue, in the order in which it is handed out: the tickets; what each holds of its group''s concurrency, if
anything (group_holds); what each holds of the queue''s own limit (queue_units), and of others (job_units); and when they were taken (at).';

create type dibs.floor as (
  priorities smallint[],
  due_us bigint[],
  ids uuid[],
  high_us bigint[],
  sweep_at bigint,
  sweep_took bigint,
  near_at bigint,
  near_step integer,
  quick_until bigint
);
comment on type dibs.floor is
'What a connection remembers of a queue: for each priority the ticket (due_us, ids) from which it scans, and when to look back
below it again, everywhere (sweep) or nearby (near). Newest first, it is a hole: everything from that ticket up to high_us was
taken. Until quick_until a claim of one job may start from it and leave it as it is.';

create type dibs.queue_scan as (
  queue dibs.queue,
  floor dibs.floor,
  next dibs.floor,
  back bigint,
  allowed integer,
  reservation dibs.queue_reservation
);
comment on type dibs.queue_scan is
'What a claim knows of one queue: where it scans from, and how far below that it looks (back); where the next claim will scan from;
how many jobs it may still take, and what it took of the queue''s own limit (reservation).';

create table dibs.floor_hint (
  what text not null,
  queue_id integer not null,
  swept_at timestamptz not null,
  took interval not null,
  floor dibs.floor not null
);
comment on table dibs.floor_hint is 'Where a fresh connection starts scanning: written by full sweeps. Insert only; upkeep deletes old ones.';
create index floor_hint_newest_idx on dibs.floor_hint (what, queue_id, swept_at desc);

create table dibs.queue_priority (
  queue_id integer not null,
  priority smallint not null
);
comment on table dibs.queue_priority is
'The priorities that jobs of a queue have had, beside the queue''s own. Insert only, without a unique key: producers never wait for
each other here, so a pair may stand twice.';
create index queue_priority_idx on dibs.queue_priority (queue_id, priority);

create table dibs.claim_lock (n integer not null constraint claim_lock_pkey primary key);
comment on table dibs.claim_lock is
'Has no rows. Every claim names it, and so locks it in the weakest mode until its transaction ends; by locking it whole one waits for
the claims in flight.';
