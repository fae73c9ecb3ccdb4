-- What happened, in numbers: counts and durations by queue and kind, of each minute, of each hour and of all time.
-- A loop reads them out of attempt, so that a completion writes nothing for them.

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
comment on table dibs.stat is 'Counts and durations by queue and kind: of each minute, of each hour, and of all time.';
create index stat_age_idx on dibs.stat (grain, at);

-- What late commits may still follow is counted here, again in each round.
create table dibs.stat_early (
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
  source text not null
);
comment on table dibs.stat_early is
'The same for runs that ended while an older transaction still writes: counted again in each round.';

-- A run that is to be counted.
create type dibs.fresh_attempt as (
  queue_id integer, kind text, outcome dibs.outcome, ended_at timestamptz, run_us bigint, wait_us bigint, page bigint);

-- How far each partition of attempt was read: pages[n] begins a stretch of pages in which every run whose transaction
-- is older than horizons[n] was counted. The last stretch is open: new rows go there. moved_by is the transaction that
-- moved rows in which were counted before; inserted and swept_inserted tell whether anything came since.
create table dibs.stat_source (
  name text not null constraint stat_source_pkey primary key,
  relation oid not null,
  filenode oid,
  pages bigint[] not null,
  horizons bigint[] not null,
  moved_by bigint not null default -1,
  inserted bigint not null default -1,
  read_at timestamptz not null,
  swept integer not null default 0,
  swept_inserted bigint not null default -1,
  sweep_at timestamptz not null
);
comment on table dibs.stat_source is 'How far each partition of `attempt` was counted.';

create table dibs.stat_unrun (
  queue_id integer not null,
  kind text not null,
  at timestamptz not null,
  state text not null,
  jobs bigint not null
);
comment on table dibs.stat_unrun is 'Jobs that ended without a run, until they are counted.';
