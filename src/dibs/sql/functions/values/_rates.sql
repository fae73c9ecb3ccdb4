-- Rates, by the generic cell rate algorithm (GCRA). A rate keeps one time, its tat (theoretical arrival time): when it
-- will have made up for every token taken so far. Each token moves the tat `1 / rate` seconds ahead, from the present
-- if the tat lies in the past. The tat may be as far ahead as the tokens of one burst take.

create or replace function dibs._burst(rate double precision, burst integer) returns integer
language sql immutable parallel safe
return coalesce(burst, least(ceil(rate), 1000000)::integer);

comment on function dibs._burst is
'Return how many jobs a rate lets start at once: `burst` if it is set, else the jobs of one second, at least 1.';

create or replace function dibs._tokens(rate double precision, burst integer, tat timestamptz, at timestamptz)
returns integer
language sql immutable parallel safe
return case when rate is null then 2147483647 else greatest(0, floor(
  dibs._burst(rate, burst) - extract(epoch from greatest(tat, at) - at)::double precision * rate + 0.000001))::integer
end;

comment on function dibs._tokens is
'Return how many jobs a rate lets start now: 2147483647 without a rate (null), the whole burst without a tat (null).';
