-- Histograms of durations. They have 160 bars: bar 1 reaches to 100 µs, each following one 2^(1/4) times as far.

create or replace function dibs._bar_of(us bigint) returns integer
language sql immutable parallel safe
return case when us is not null then least(greatest(
  ceil(4 * ln(greatest(us, 1) / 100.0::double precision) / ln(2::double precision))::integer + 1, 1), 160) end;

comment on function dibs._bar_of is 'Return the bar (1 to 160) of a duration in microseconds; null for null.';

create or replace function dibs._bar_upper_us(bar integer) returns double precision
language sql immutable strict parallel safe
return 100 * power(2::double precision, (bar - 1) / 4.0::double precision);

comment on function dibs._bar_upper_us is 'Return the longest duration of a bar, in microseconds.';

create or replace function dibs._histogram(bars integer[], counts bigint[]) returns bigint[]
language sql immutable parallel safe
return coalesce((
  select array_agg(coalesce(c.n, 0)::bigint order by s.bar)
  from generate_series(1, (select max(b) from unnest(bars) as b)) as s (bar)
  left join (select b.bar, sum(b.n) as n from unnest(bars, counts) as b (bar, n) group by b.bar) as c
    on c.bar = s.bar), '{}');

comment on function dibs._histogram is
'Build a histogram from pairs of bar and count. A bar may occur several times; pairs with a null bar are left out.';

create or replace function dibs._add_histograms(a bigint[], b bigint[]) returns bigint[]
language sql immutable parallel safe
return coalesce((
  select array_agg(coalesce(pair.a, 0) + coalesce(pair.b, 0) order by pair.bar)
  from unnest(a, b) with ordinality as pair (a, b, bar)), '{}');

comment on function dibs._add_histograms is 'Return the sum of two histograms, which may differ in length.';

create or replace function dibs._quantile(bars bigint[], counts bigint[], fraction double precision, max_us bigint)
returns interval
language sql immutable strict parallel safe
begin atomic
  -- Interpolate within the bar on a logarithmic scale.
  select least(max_us, dibs._bar_upper_us(c.bar::integer) * power(2::double precision,
      ((c.total * fraction - (c.upto - c.count)) / c.count - 1) / 4.0)) * interval '1 microsecond'
  from (
    select b.bar, b.count, sum(b.count) over (order by b.bar) as upto, sum(b.count) over () as total
    from unnest(bars, counts) as b (bar, count) where b.count > 0
  ) as c
  where c.upto >= c.total * fraction
  order by c.bar limit 1;
end;

comment on function dibs._quantile is
'Return a quantile of a histogram that is given as pairs of bar and count: for fraction 0.95 the duration that 95 % of
all durations do not exceed, exact to the width of a bar and at most `max_us`. Null if the histogram is empty.';

create or replace function dibs._mean_duration(total_us numeric, count numeric) returns interval
language sql immutable parallel safe
return case when count > 0 then (total_us / count)::double precision * interval '1 microsecond' end;

comment on function dibs._mean_duration is
'Return the mean of durations from their sum in microseconds and their count; null for count 0.';

create or replace function dibs._micros_between(from_at timestamptz, to_at timestamptz) returns bigint
language sql immutable parallel safe
return (date_part('epoch', to_at - from_at) * 1000000)::bigint;

comment on function dibs._micros_between is 'Return the time between two timestamps, in microseconds.';
