-- Backpressure has no table: only what a session remembers, in its setting dibs.pressure_<queue>.

create type dibs.pressure as (
  good_until_us bigint,
  waiting bigint,
  oldest_due timestamptz
);
comment on type dibs.pressure is
'How full a queue or group is. good_until_us: when to measure it again, in microseconds. waiting: how many jobs wait,
not exact above max_depth; null without a max_depth. oldest_due: since when the oldest of them is due; null without a
max_age, infinity if no job of a queue waits.';
