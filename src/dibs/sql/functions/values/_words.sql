-- Times and durations in sentences for people.

create or replace function dibs._utc_text(at timestamptz) returns text
language sql stable
return to_char(_utc_text.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"');

comment on function dibs._utc_text is 'A time in UTC, which it says, whatever the zone of the session is.';

create or replace function dibs._duration_text(span interval) returns text
language sql stable
return date_trunc(case when span < interval '10 seconds' then 'milliseconds' else 'second' end, span)::text;

comment on function dibs._duration_text is 'A duration without digits that nobody reads.';
