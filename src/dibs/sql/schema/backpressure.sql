-- What a connection remembers of how much waits in a queue, in its session setting dibs.pressure_<queue>.

create type dibs.pressure as (
  good_until_us bigint,
  waiting bigint,
  oldest_due timestamptz
);
