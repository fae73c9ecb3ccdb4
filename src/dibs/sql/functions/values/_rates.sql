-- Rates: a GCRA, exact in any order. tat is the time at which what was let through has been caught up with.

create or replace function dibs._token_time(rate double precision, n double precision) returns interval
language sql immutable parallel safe
return n / rate * interval '1 second';

comment on function dibs._token_time is 'How long a rate takes to let so many jobs through.';

create or replace function dibs._default_burst(rate double precision) returns integer
language sql immutable parallel safe
return least(ceil(rate), 1000000)::integer;

comment on function dibs._default_burst is 'The burst of a rate that names none: one second''s worth.';

create or replace function dibs._tokens(rate double precision, burst integer, tat timestamptz, at timestamptz) returns integer
language sql immutable parallel safe
return case when rate is null then 2147483647 else greatest(0, floor(
  burst - extract(epoch from greatest(tat, at) - at)::double precision * rate + 0.000001))::integer end;

comment on function dibs._tokens is 'How many jobs a rate lets start now: the burst, less what has not been caught up with.';
