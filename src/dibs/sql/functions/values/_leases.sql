-- How long a lease lasts, when a job expires, when a retry is due.

create or replace function dibs._lease_length(
  lease interval, growth double precision, cap interval, attempt integer)
returns interval
language sql immutable parallel safe
return case when growth = 1 or attempt <= 1 then least(lease, cap)
  -- In seconds, and with a bounded exponent: no growth and no attempt number overflows an interval.
  else least(extract(epoch from lease)::double precision * exp(least((attempt - 1) * ln(growth), 100)),
             extract(epoch from cap)::double precision) * interval '1 second' end;

comment on function dibs._lease_length is 'How long the lease of an attempt is, grown and capped.';

create or replace function dibs._job_lease(
  lease interval, growth double precision, cap interval, queue dibs.queue, attempt integer)
returns interval
language sql immutable parallel safe
return case when num_nonnulls(lease, growth, cap) > 0 then dibs._lease_length(
  coalesce(lease, (queue).lease), coalesce(growth, (queue).lease_growth), coalesce(cap, (queue).lease_cap),
  attempt) end;

comment on function dibs._job_lease is
'How long a job''s lease lasts by its own policy, with the queue''s for what it leaves open; null if it has none.';

create or replace function dibs._expiry(due_at timestamptz, ttl interval, deadline timestamptz)
returns timestamptz
language sql stable parallel safe
return least(case when ttl < interval '10 years' then due_at + ttl else 'infinity' end,
             coalesce(deadline, 'infinity'));

comment on function dibs._expiry is 'When a job due at `due_at` expires: a TTL of 10 years or none is never.';

create or replace function dibs._backoff_delay(backoff dibs.backoff, attempt integer) returns interval
language sql volatile parallel safe
return (1 - coalesce((backoff).jitter, 0) * random()) * least(
  case (backoff).kind
    when 'exponential' then
      -- In seconds, and with a bounded exponent: no attempt number overflows an interval.
      extract(epoch from (backoff).delays[1])::double precision
        * exp(least((attempt - 1) * ln(coalesce((backoff).factor, 2)), 100))
    else extract(epoch from (backoff).delays[least(attempt, cardinality((backoff).delays))])::double precision
  end,
  extract(epoch from coalesce((backoff).cap, interval '1 year'))::double precision) * interval '1 second';

comment on function dibs._backoff_delay is 'How long to wait after a failed attempt: a constant, a list whose last value repeats, or exponential; capped, then made shorter by up to the jitter.';
