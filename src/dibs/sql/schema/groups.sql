-- Groups take turns. functions/groups/README.md has the invariants.

-- What was set for a group, or for all groups of a queue without their own settings (group_key zero).
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
  constraint group_policy_pkey primary key (queue_id, group_key),
  constraint group_policy_weight_range check (weight between 1 and 1000),
  constraint group_policy_concurrency_range check (concurrency between 1 and 1000000),
  constraint group_policy_rate_range check (rate between 0.000001 and 1000000),
  constraint group_policy_burst_range check (burst between 1 and least(1000000, rate * 10000000000)),
  constraint group_policy_max_depth_range check (max_depth between 1 and 100000000),
  constraint group_policy_max_age_range check (max_age between interval '1 second' and interval '10 years')
);
comment on table dibs.group_policy is 'Weight and limits of a group, or of all groups of a queue.';
create index group_policy_weight_idx on dibs.group_policy (queue_id) where weight > 1;
comment on column dibs.group_policy.group_key is 'The group: a hash of queue and name. The nil id stands for every group without its own.';
comment on column dibs.group_policy.name is 'The group''s name; null for every group of the queue without its own policy.';
comment on column dibs.group_policy.weight is 'Its share against other groups.';
comment on column dibs.group_policy.concurrency is 'How many of its jobs run at once; 1 is strict order.';
comment on column dibs.group_policy.rate is 'How many of its jobs start per second.';
comment on column dibs.group_policy.burst is 'How many may start at once after a rest; null for one second''s worth.';
comment on column dibs.group_policy.max_depth is 'How many of its jobs may wait.';
comment on column dibs.group_policy.max_age is 'How long its oldest job may have been due.';

create type dibs.group_floor as (level smallint, due_at timestamptz, id uuid, cost real);
comment on type dibs.group_floor is 'Where to start looking for tickets of a group with this priority, and what the first of them costs.';

create sequence dibs.group_pointer_n_seq;
create table dibs.group_pointer (
  n bigint not null default nextval('dibs.group_pointer_n_seq'),
  place timestamptz not null,
  group_key uuid not null,
  floor_at timestamptz,
  floor_id uuid,
  next uuid,
  queue_id integer not null,
  freed integer not null default 0,
  cost real not null default 1,
  level smallint,
  ring boolean not null default false
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.group_pointer_n_seq owned by dibs.group_pointer.n;
create index group_pointer_place_idx on dibs.group_pointer (queue_id, place, n);
create index group_pointer_group_idx on dibs.group_pointer (group_key, place);
comment on table dibs.group_pointer is 'From its floor on, a group has tickets of this priority; look at it then. Insert, delete.';
comment on column dibs.group_pointer.n is 'The order among pointers of one place.';
comment on column dibs.group_pointer.place is 'When to look at the group; the order of places is the order of service.';
comment on column dibs.group_pointer.group_key is 'The group: a hash of queue and name.';
comment on column dibs.group_pointer.floor_at is 'No ticket it points to is due earlier; null if it points to none and only says that something changed.';
comment on column dibs.group_pointer.floor_id is 'The id of the first ticket it points to, of those due at floor_at; null if any.';
comment on column dibs.group_pointer.next is 'Where the order is strict: the job that the group has to go on with.';
comment on column dibs.group_pointer.queue_id is 'The queue; below zero if the group is noisy and served last.';
comment on column dibs.group_pointer.freed is 'How many running jobs of a limited group have ended.';
comment on column dibs.group_pointer.cost is 'What the jobs at its floor cost, on average.';
comment on column dibs.group_pointer.level is 'The priority of the tickets it points to.';
comment on column dibs.group_pointer.ring is 'Whether to ring for the queue: another worker may go on.';

create constraint trigger group_pointer_ring after insert on dibs.group_pointer
deferrable initially deferred for each row when (new.ring) execute function dibs._ring();

create sequence dibs.group_gate_n_seq;
create table dibs.group_gate (
  n bigint not null default nextval('dibs.group_gate_n_seq'),
  group_key uuid not null,
  tat timestamptz,
  next uuid,
  queue_id integer not null,
  running integer not null,
  floors dibs.group_floor[] not null
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.group_gate_n_seq owned by dibs.group_gate.n;
create index group_gate_group_idx on dibs.group_gate (group_key, n);
comment on table dibs.group_gate is 'What a group with a concurrency or a rate has in use; the row with the highest n counts. Insert, delete.';
comment on column dibs.group_gate.n is 'Counts up, so that the newest row is found before dead ones.';
comment on column dibs.group_gate.group_key is 'The group: a hash of queue and name.';
comment on column dibs.group_gate.tat is 'How far its rate is spent.';
comment on column dibs.group_gate.next is 'Where the order is strict: the job that the group has to go on with.';
comment on column dibs.group_gate.queue_id is 'The queue.';
comment on column dibs.group_gate.running is 'How many of its jobs run, by what was merged so far.';
comment on column dibs.group_gate.floors is 'Where its tickets are that wait for a running job to end.';

create table dibs.group_lock (bucket integer not null constraint group_lock_pkey primary key);
insert into dibs.group_lock (bucket) select b from generate_series(0, 4095) as b;
comment on table dibs.group_lock is 'What a claim locks to serve a limited group: rows that never change, found by a hash of the group.';
comment on column dibs.group_lock.bucket is 'The hash.';

create sequence dibs.group_draw_seq;
comment on sequence dibs.group_draw_seq is 'Counts the draws by which claims share fractions of a job among groups.';

-- A group that a claim serves: what its pointers say, and what its policy and its gate allow. Its room is null if the group
-- is unlimited. A room of 0 where running is null means that another claim has the lock: this one puts back all it deleted.
create type dibs.group_hand as (
  group_key uuid,
  n bigint,
  place timestamptz,
  is_own boolean,
  floors dibs.group_floor[],
  freed integer,
  next dibs.group_floor,
  policy dibs.group_policy,
  running integer,
  tat timestamptz,
  room integer
);

-- What a claim has taken from hands: which hand each ticket is from, what it counts for there, and which hands were asked,
-- that is, sought for at least one ticket. A hand that was asked and gave none is shut.
create type dibs.group_catch as (
  tickets dibs.ready[],
  group_holds dibs.group_hold[],
  ords integer[],
  asked integer[]
);
