-- Rates, by the generic cell rate algorithm (GCRA). Its state is one time, tat (theoretical arrival time): each job
-- that starts moves it forward by 1/rate, and the burst says how far it may be ahead of now.

create or replace function dibs._token_time(rate double precision, n double precision) returns interval
language sql immutable parallel safe
return n / rate * interval '1 second';

comment on function dibs._token_time is 'How long a rate takes to let n jobs start.';

create or replace function dibs._default_burst(rate double precision) returns integer
language sql immutable parallel safe
return least(ceil(rate), 1000000)::integer;

comment on function dibs._default_burst is 'The burst of a rate that sets none: the jobs of one second, at least 1.';

create or replace function dibs._tokens(rate double precision, burst integer, tat timestamptz, at timestamptz)
returns integer
language sql immutable parallel safe
return case when rate is null then 2147483647 else greatest(0, floor(
  burst - extract(epoch from greatest(tat, at) - at)::double precision * rate + 0.000001))::integer end;

comment on function dibs._tokens is
'How many jobs a rate lets start now. Without a rate (null) 2,147,483,647; with null for tat the burst.';
