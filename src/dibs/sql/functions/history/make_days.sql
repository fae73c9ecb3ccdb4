-- make_days: create the partitions of the days ahead.

create or replace function dibs.make_days(ahead integer default 7)
returns table (name text, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_today date := (dibs.now() at time zone 'UTC')::date;
  v_parent text;
begin
  perform dibs._check_isolation('make_days');
  if ahead is null or ahead not between 1 and 366 then
    raise exception using errcode = 'DI010', message = format('days are made 1 to 366 ahead, not %s', ahead);
  end if;
  if (dibs._lock_chore('make_days')).name is null then
    return query select t, 'locked' from unnest(array['job', 'attempt']) as t;
    return;
  end if;
  foreach v_parent in array array['job', 'attempt'] loop
    for n in -1 .. ahead loop
      name := dibs._day_name(v_parent, v_today + n);
      outcome := dibs._make_day(v_parent, v_today + n);
      return next;
      -- Attaching a partition scans the whole default partition under its lock. While that is large, one per call.
      exit when outcome = 'locked' or outcome = 'made' and dibs._is_default_large(v_parent);
    end loop;
  end loop;
end
$$;

comment on function dibs.make_days is
'Worker protocol: create the daily partitions of `job` and `attempt`, from yesterday to `ahead` days from now; only one
of each in a call while its default partition is large. Returns a row for each day it came to: `made`, `exists`,
`locked` (try again later) or `crowded`. An enqueue never needs a day: without it, a job goes to the default
partition.';
