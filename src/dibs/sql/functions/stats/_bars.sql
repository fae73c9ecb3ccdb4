-- Durations as histograms of 160 bars: the first reaches to 100 µs, each of the others 2^(1/4) times as far.

create or replace function dibs._bar_of(us bigint) returns integer
language sql immutable parallel safe
return case when us is not null then least(greatest(
  ceil(4 * ln(greatest(us, 1) / 100.0::double precision) / ln(2::double precision))::integer + 1, 1), 160) end;

comment on function dibs._bar_of is
'Which bar of a histogram a duration falls into: bar 1 is up to 100 µs, each bar reaches 2^(1/4) times as far.';

create or replace function dibs._bar_upper_us(bar integer) returns double precision
language sql immutable strict parallel safe
return 100 * power(2::double precision, (bar - 1) / 4.0::double precision);

comment on function dibs._bar_upper_us is 'How far a bar of a histogram reaches, in microseconds.';

create or replace function dibs._histogram(these integer[], counts bigint[]) returns bigint[]
language sql immutable parallel safe
return coalesce((
  select array_agg(coalesce(c.n, 0)::bigint order by s.bar)
  from generate_series(1, (select max(b) from unnest(these) as b)) as s (bar)
  left join (select b.bar, sum(b.n) as n from unnest(these, counts) as b (bar, n) group by b.bar) as c
    on c.bar = s.bar), '{}');

comment on function dibs._histogram is
'A histogram, an array of how many are in each bar, made of bars (null is none) and how many are in each. Beyond its end
all are zero.';

create or replace function dibs._add_histograms(one bigint[], other bigint[]) returns bigint[]
language sql immutable parallel safe
return coalesce((
  select array_agg(coalesce(b.one, 0) + coalesce(b.other, 0) order by b.n)
  from unnest(one, other) with ordinality as b (one, other, n)), '{}');

comment on function dibs._add_histograms is 'The sum of two histograms.';

create or replace function dibs._quantile(bars bigint[], counts bigint[], part double precision, max_us bigint)
returns interval
language sql immutable strict parallel safe
begin atomic
  -- Within a bar, durations count as evenly spread on a logarithmic scale.
  select least(max_us, dibs._bar_upper_us(c.bar::integer) * power(2::double precision,
      ((c.total * part - (c.upto - c.count)) / c.count - 1) / 4.0)) * interval '1 microsecond'
  from (
    select b.bar, b.count, sum(b.count) over (order by b.bar) as upto, sum(b.count) over () as total
    from unnest(bars, counts) as b (bar, count) where b.count > 0
  ) as c
  where c.upto >= c.total * part
  order by c.bar limit 1;
end;

comment on function dibs._quantile is
'The duration that `part` of those in a histogram, bars and how many are in each, do not exceed, to within a bar''s width; null when it is
empty.';

create or replace function dibs._mean_duration(us numeric, times numeric) returns interval
language sql immutable parallel safe
return case when times > 0 then (us / times)::double precision * interval '1 microsecond' end;

comment on function dibs._mean_duration is 'A sum of microseconds divided by how many they are; null for none.';

create or replace function dibs._span_of(us bigint, times numeric) returns interval
language sql immutable parallel safe
return case when times > 0 then us * interval '1 microsecond' end;

comment on function dibs._span_of is 'Microseconds as an interval, null if there was nothing to measure.';

create or replace function dibs._micros_between(from_at timestamptz, to_at timestamptz) returns bigint
language sql immutable parallel safe
return (date_part('epoch', to_at - from_at) * 1000000)::bigint;

comment on function dibs._micros_between is 'How many microseconds lie between two times.';
