-- What a connection remembers of a queue between claims, and where a fresh one starts.

-- Kept in the session setting dibs.floor_<queue>: for each priority from 0 to 10 where to start scanning, and when to
-- look back below that again.
create type dibs.floor as (
  due_us bigint[],
  ids uuid[],
  sweep_at bigint,
  sweep_took bigint,
  near_at bigint,
  near_step integer
);

-- Kept in the session setting dibs.holes_<queue>, for a newest-first queue: ranges of due times in which everything was
-- taken, for each priority, and when to look into them again. A hole reaches from above the ticket (low_us, low_ids) to below
-- the time high_us.
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

-- Written by full sweeps, read by fresh connections.
create table dibs.floor_hint (
  queue_id integer not null,
  swept_at timestamptz not null,
  took interval not null,
  due_us bigint[] not null,
  ids uuid[] not null,
  holes dibs.holes
);
comment on table dibs.floor_hint is 'Where a fresh connection starts scanning. Insert only.';
create index floor_hint_newest_idx on dibs.floor_hint (queue_id, swept_at desc);
