-- Fair shares, order and limits of groups. functions/groups/README.md has the terms and the invariants.

create table dibs.group_policy (
  queue_id integer not null,
  group_key uuid not null,
  name text,
  weight integer not null default 1,
  concurrency integer,
  rate double precision,
  burst integer,
  max_depth integer,
  max_age interval,
  is_limited boolean not null generated always as (concurrency is not null or rate is not null) stored,
  group_hold dibs.group_hold not null generated always as (case
    when concurrency = 1 then dibs.group_hold 'exclusive' when concurrency > 1 then 'shared' else 'none' end) stored,
  constraint group_policy_pkey primary key (queue_id, group_key),
  constraint group_policy_weight_range check (weight between 1 and 1000),
  constraint group_policy_concurrency_range check (concurrency between 1 and 1000000),
  constraint group_policy_rate_range check (rate between 0.000001 and 1000000),
  constraint group_policy_burst_range check (burst between 1 and least(1000000, rate * 10000000000)),
  constraint group_policy_max_depth_range check (max_depth between 1 and 100000000),
  constraint group_policy_max_age_range check (max_age between interval '1 second' and interval '10 years')
);
comment on table dibs.group_policy is
'Weight and limits of one group, or of all groups of a queue that have no policy themselves (the nil id).';
create index group_policy_weight_idx on dibs.group_policy (queue_id) where weight > 1;
comment on column dibs.group_policy.group_key is
'The group: a hash of queue and name. The nil id stands for every group without its own.';
comment on column dibs.group_policy.name is 'The group''s name; null if the policy is for every group without its own.';
comment on column dibs.group_policy.weight is 'Its share against other groups.';
comment on column dibs.group_policy.concurrency is 'The number of its jobs that may run at once; 1 is strict order.';
comment on column dibs.group_policy.rate is 'The number of its jobs that may start per second.';
comment on column dibs.group_policy.burst is
'The number of jobs that may start at once after a rest; null for one second''s worth.';
comment on column dibs.group_policy.max_depth is 'The number of its jobs that may wait.';
comment on column dibs.group_policy.max_age is 'The longest time that its oldest job may have been due.';
comment on column dibs.group_policy.is_limited is 'True if the group is limited: it has a concurrency or a rate.';
comment on column dibs.group_policy.group_hold is 'The hold that each of its jobs takes while it runs or is blocked.';

create type dibs.group_floor as (priority smallint, due_at timestamptz, id uuid, cost real);
comment on type dibs.group_floor is
'A place in the order of a group''s tickets of this priority, from which on it has tickets: by due time, then by id
(null for any). `cost` is the expected cost of the first one: of several, the average.';

create sequence dibs.group_pointer_n_seq;
create table dibs.group_pointer (
  n bigint not null default nextval('dibs.group_pointer_n_seq'),
  look_at timestamptz not null,
  group_key uuid not null,
  floor_at timestamptz,
  floor_id uuid,
  next_id uuid,
  queue_id integer not null,
  ended_runs integer not null default 0,
  cost real not null default 1,
  priority smallint,
  ring boolean not null default false
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.group_pointer_n_seq owned by dibs.group_pointer.n;
create index group_pointer_look_at_idx on dibs.group_pointer (queue_id, look_at, n);
create index group_pointer_group_idx on dibs.group_pointer (group_key, look_at);
comment on table dibs.group_pointer is
'An entry of a rotation: a claim looks at this group from `look_at` on. Rows are inserted and deleted, never updated.';
comment on column dibs.group_pointer.n is 'A sequence number: the order among pointers with one look_at.';
comment on column dibs.group_pointer.look_at is 'When the pointer is due; claims take pointers in this order.';
comment on column dibs.group_pointer.group_key is 'The group: a hash of queue and name.';
comment on column dibs.group_pointer.floor_at is
'No ticket of this priority that the pointer stands for is due earlier; null for a wakeup, which stands for no ticket.';
comment on column dibs.group_pointer.floor_id is 'The id of the first ticket due at floor_at; null for any.';
comment on column dibs.group_pointer.next_id is
'In a strict group: the job that has to run next, because it ran before and waits again.';
comment on column dibs.group_pointer.queue_id is 'The rotation: the queue''s id, or the negated id for noisy groups.';
comment on column dibs.group_pointer.ended_runs is
'The number of runs of a limited group that ended and that its gate still counts.';
comment on column dibs.group_pointer.cost is 'The average cost of the tickets at its floor.';
comment on column dibs.group_pointer.priority is 'The priority of its tickets; null for a wakeup.';
comment on column dibs.group_pointer.ring is 'True if its commit wakes a worker of the queue.';

create constraint trigger group_pointer_ring after insert on dibs.group_pointer
deferrable initially deferred for each row when (new.ring) execute function dibs._ring();

create sequence dibs.group_gate_n_seq;
create table dibs.group_gate (
  n bigint not null default nextval('dibs.group_gate_n_seq'),
  group_key uuid not null,
  tat timestamptz,
  next_id uuid,
  queue_id integer not null,
  running integer not null,
  floors dibs.group_floor[] not null
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.group_gate_n_seq owned by dibs.group_gate.n;
create index group_gate_group_idx on dibs.group_gate (group_key, n);
comment on table dibs.group_gate is
'The concurrency and rate that a limited group uses; a group that uses nothing has no row. The row with the highest n
counts. Rows are inserted and deleted, never updated.';
comment on column dibs.group_gate.n is 'A sequence number: the newest row is found before dead ones.';
comment on column dibs.group_gate.group_key is 'The group: a hash of queue and name.';
comment on column dibs.group_gate.tat is
'The theoretical arrival time of the group''s rate (GCRA): when the whole burst is free again; null without a rate.';
comment on column dibs.group_gate.next_id is
'In a strict group: the job that has to run next, because it ran before and waits again.';
comment on column dibs.group_gate.queue_id is 'The queue.';
comment on column dibs.group_gate.running is
'The number of its leases and blocked tickets with a hold, and of the ended_runs of its pointers.';
comment on column dibs.group_gate.floors is
'The floors of its tickets while the group is stopped, because its concurrency is used up or next_id is not due: then it
has no pointers to them. Otherwise empty.';

create table dibs.group_lock (bucket integer not null constraint group_lock_pkey primary key);
insert into dibs.group_lock (bucket) select b from generate_series(0, 4095) as b;
comment on table dibs.group_lock is
'Locks of limited groups: a claim locks the row of a group''s bucket to serve the group. The rows never change.';
comment on column dibs.group_lock.bucket is 'A hash of the group.';

create sequence dibs.group_draw_seq;
comment on sequence dibs.group_draw_seq is
'Numbers the draws of _take_tickets, which shares the jobs of a claim among groups.';

create type dibs.group_gate_state as enum (
  'none',    -- the group is not limited
  'locked',  -- the group is limited, and this claim has locked it
  'busy'     -- the group is limited, and another transaction has its lock or its pointers
);

create type dibs.group_candidate as (
  group_key uuid,
  -- From the pointers of the group, merged:
  pointer_n bigint,                 -- the lowest n and look_at of the pointers; null if not has_pointers
  look_at timestamptz,
  has_pointers boolean,             -- this claim has deleted the pointers; false if another claim has locked them
  floors dibs.group_floor[],        -- where its tickets begin, the highest priority first; null for only wakeups
  ended_runs integer,               -- the sum
  next_id uuid,                     -- in a strict group: the job that has to run next
  -- From its policy and its gate, if its queue has policies:
  next_ticket dibs.group_floor,     -- the ticket of the job that has to run next (next_id of a pointer or the gate)
  policy dibs.group_policy,
  gate dibs.group_gate_state,
  running integer,                  -- by group_gate, without the ended runs
  tat timestamptz,                  -- by group_gate: when the whole burst is free again
  free_runs integer                 -- the number of jobs that may start; null for any number
);
comment on type dibs.group_candidate is 'A group that a claim may serve.';

create type dibs.group_search as (
  rotation integer,                 -- the queue's id, or the negated id for noisy groups
  from_at timestamptz,              -- the pointer (look_at, n) from which the claim looks
  from_n bigint,
  width integer,                    -- the number of pointers to look at next
  first_at timestamptz,             -- the first pointer (look_at, n) that it deleted; null if none
  first_n bigint,
  candidates dibs.group_candidate[],  -- their numbers are their places in this array
  first_tried_no integer,           -- a round tries this candidate and those after it: the new ones, in the end all
  has_more_pointers boolean,        -- there may be more pointers
  includes_others boolean           -- the groups whose pointers other claims have locked are candidates, too
);
comment on type dibs.group_search is 'The state of a claim in one rotation: the candidates that it has found.';

create type dibs.group_tickets as (
  tickets dibs.ready[],
  group_holds dibs.group_hold[],    -- the hold of each ticket; null for early_tickets, which have none
  candidate_nos integer[],          -- the number of the candidate that gave it
  exhausted_nos integer[]           -- the numbers of the candidates that were tried and gave none
);
comment on type dibs.group_tickets is 'The tickets of one round of a claim, and the candidates that gave it none.';
