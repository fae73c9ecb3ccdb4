-- The length of a lease, the expiry of a job, the delay of a retry.

create or replace function dibs._lease_length(
  lease interval, growth double precision, cap interval, attempt integer)
returns interval
language sql immutable parallel safe
return case when growth = 1 or attempt <= 1 then least(lease, cap)
  -- Compute in seconds with a bounded exponent, so that no attempt number overflows: the cap then bounds the result.
  else least(extract(epoch from lease)::double precision * exp(least((attempt - 1) * ln(growth), 100)),
             extract(epoch from cap)::double precision) * interval '1 second' end;

comment on function dibs._lease_length is
'Return the length of the lease of an attempt: `lease` for the first, times `growth` for each later one, at most
`cap`.';

create or replace function dibs._job_lease(
  lease interval, growth double precision, cap interval, queue dibs.queue, attempt integer)
returns interval
language sql immutable parallel safe
return case when num_nonnulls(lease, growth, cap) > 0 then dibs._lease_length(
  coalesce(lease, (queue).lease), coalesce(growth, (queue).lease_growth), coalesce(cap, (queue).lease_cap),
  attempt) end;

comment on function dibs._job_lease is
'Return the length of a job''s lease by the job''s own policy; the queue''s values replace nulls. Null if lease, growth
and cap of the job are all null.';

create or replace function dibs._expiry(due_at timestamptz, ttl interval, deadline timestamptz)
returns timestamptz
language sql stable parallel safe
return least(case when ttl < interval '10 years' then due_at + ttl else 'infinity' end,
             coalesce(deadline, 'infinity'));

comment on function dibs._expiry is
'Return the time at which a job due at `due_at` expires: the end of its TTL or its deadline, the earlier of the two. A
TTL that is null or 10 years or longer (3600 days, as PostgreSQL compares) never ends. Infinity if neither ends.';

create or replace function dibs._backoff_delay(backoff dibs.backoff, attempt integer) returns interval
language sql volatile parallel safe
return (1 - coalesce((backoff).jitter, 0) * random())
  * least(
    extract(epoch from coalesce((backoff).cap, interval '1 year'))::double precision,
    case (backoff).kind
      -- delays[1] * factor ^ (attempt - 1), with a bounded exponent, so that no attempt number overflows.
      when 'exponential' then extract(epoch from (backoff).delays[1])::double precision
        * exp(least((attempt - 1) * ln(coalesce((backoff).factor, 2)), 100))
      else extract(epoch from (backoff).delays[least(attempt, cardinality((backoff).delays))])::double precision
    end)
  * interval '1 second';

comment on function dibs._backoff_delay is
'Return the delay after a failed attempt: exponential, or from a list whose last value repeats (a constant is a list of
one). It is at most the cap, by default a year, and then made shorter by a random part up to `jitter`.';
