-- Times and durations as text for people.

create or replace function dibs._utc_text(at timestamptz) returns text
language sql stable
return to_char(_utc_text.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"');

comment on function dibs._utc_text is
'Return a time as text in UTC with a Z, independent of the time zone of the session.';

create or replace function dibs._duration_text(span interval) returns text
language sql stable
return date_trunc(case when span < interval '10 seconds' then 'milliseconds' else 'second' end, span)::text;

comment on function dibs._duration_text is
'Return a duration as text, cut off to milliseconds below 10 seconds and otherwise to seconds.';
