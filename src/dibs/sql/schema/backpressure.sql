-- Backpressure has no table: only what a session remembers, in its setting dibs.pressure_<queue>.

create type dibs.pressure as (
  good_until_us bigint,
  waiting bigint,
  oldest_due timestamptz
);
comment on type dibs.pressure is
'How full a queue is: the jobs that wait (counted up to max_depth; null without one), since when the oldest of them is
due (null without a max_age, infinity if none is), and until when to believe it, in microseconds.';
