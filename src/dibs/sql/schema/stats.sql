-- Counts and durations of runs by queue and kind, for each minute, each hour and all time. `roll_up` computes them from
-- the table attempt, so that a completion writes nothing for them.

create table dibs.stat (
  queue_id integer not null,
  kind text not null,
  grain text not null,
  at timestamptz not null,
  succeeded bigint not null default 0,
  failed bigint not null default 0,
  lost bigint not null default 0,
  snoozed bigint not null default 0,
  released bigint not null default 0,
  cancelled bigint not null default 0,
  expired bigint not null default 0,
  runs bigint not null default 0,
  run_us bigint not null default 0,
  run_max_us bigint not null default 0,
  waits bigint not null default 0,
  wait_us bigint not null default 0,
  wait_max_us bigint not null default 0,
  last_at timestamptz,
  last_us bigint,
  run_counts bigint[] not null default '{}',
  wait_counts bigint[] not null default '{}',
  constraint stat_pkey primary key (queue_id, kind, grain, at),
  constraint stat_grain_known check (grain in ('minute', 'hour', 'ever'))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
comment on table dibs.stat is
'Counts and durations of runs by queue and kind: for each minute, each hour, and all time.';
comment on column dibs.stat.grain is 'The length of time that the row counts: `minute`, `hour` or `ever`.';
comment on column dibs.stat.at is 'The start of the minute or hour; the epoch for `ever`.';
comment on column dibs.stat.runs is
'How many runs were timed: those that succeeded or failed. run_us is their sum in microseconds.';
comment on column dibs.stat.waits is
'How many waits for the first run of a job were timed. wait_us is their sum in microseconds.';
comment on column dibs.stat.last_at is 'When the last timed run ended; last_us is how long it took.';
comment on column dibs.stat.run_counts is 'A histogram of the timed runs: element n counts those in bar n.';
create index stat_age_idx on dibs.stat (grain, at);

create table dibs.stat_mark (
  one boolean not null default true constraint stat_mark_pkey primary key constraint stat_mark_one_row check (one),
  relation oid not null,
  next bigint not null,
  open bigint[] not null default '{}',
  ended_at timestamptz not null default '-infinity',
  restored_until timestamptz not null default '-infinity'
);
comment on table dibs.stat_mark is 'How far the table attempt is counted: one row.';
comment on column dibs.stat_mark.relation is
'The oid of the table attempt. It differs after a restore from a dump, which is how a restore is noticed.';
comment on column dibs.stat_mark.next is 'Runs of transactions below this number are counted, except those of `open`.';
comment on column dibs.stat_mark.open is 'Transactions below `next` that were in progress at the last round.';
comment on column dibs.stat_mark.ended_at is 'The latest end of a run that is counted.';
comment on column dibs.stat_mark.restored_until is
'Runs that ended up to this time were counted before the dump that this database was restored from. `-infinity` if it
was not restored.';
insert into dibs.stat_mark (relation, next) values ('dibs.attempt'::regclass, txid_current());

create table dibs.stat_unrun (
  queue_id integer not null,
  kind text not null,
  at timestamptz not null,
  state text not null,
  jobs bigint not null
);
comment on table dibs.stat_unrun is 'Jobs that ended without a run, until they are counted.';

create type dibs.run_group as (
  queue_id integer, kind text, minute timestamptz, state text, run_bar integer, wait_bar integer, times bigint,
  run_us bigint, run_max_us bigint, wait_us bigint, wait_max_us bigint, ended_at timestamptz, last_us bigint);
comment on type dibs.run_group is
'Runs, or jobs without a run, that are counted together: of one queue, kind, minute and outcome (`state`), and with
durations in the same bars. `times` is how many they are; `ended_at` and `last_us` are of the last one.';
