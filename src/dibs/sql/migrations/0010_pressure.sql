-- How much may wait in a queue, what happens to what comes on top of it, and from which end it is served.
-- There was no release before this one, so the tables are empty and nothing is blocked by it.
-- squawk-ignore-file constraint-missing-not-valid, require-concurrent-index-creation

alter table dibs.queue
  add column max_depth integer,
  add column max_age interval,
  add column when_full text not null default 'refuse',
  add column newest_first boolean not null default false,
  add constraint queue_max_depth_range check (max_depth between 1 and 100000000),
  add constraint queue_max_age_range check (max_age between interval '1 second' and interval '10 years'),
  add constraint queue_when_full_known check (when_full in ('refuse', 'sideline'));

create index blocked_queue_idx on dibs.blocked (queue_id);

-- What a connection remembers of a newest-first queue between claims, in its session setting dibs.holes_<queue>: ranges of
-- due times in which everything was taken, for each priority (levels); and when to look into them again. A hole reaches
-- from above the ticket (low_us, low_ids) to below the time high_us.
create type dibs.holes as (
  levels smallint[],
  low_us bigint[],
  low_ids uuid[],
  high_us bigint[],
  sweep_at bigint,
  sweep_took bigint,
  near_at bigint,
  near_step integer
);

alter table dibs.floor_hint add column holes dibs.holes;

-- What a connection remembers of how much waits in a queue, in its session setting dibs.pressure_<queue>.
create type dibs.pressure as (
  good_until_us bigint,
  waiting bigint,
  oldest_due timestamptz
);
