-- prune: old days away; and the days ahead made.

create or replace function dibs.make_days(ahead integer default 7)
returns table (name text, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform dibs.check_isolation('make_days');
  if ahead is null or ahead not between 1 and 366 then
    raise exception using errcode = 'DI010', message = format('days are made 1 to 366 ahead, not %s', ahead);
  end if;
  return query
  select dibs.day_name(p, d::date), dibs.make_day(p, d::date)
  from unnest(array['job', 'attempt']) as p
  cross join generate_series(
    (dibs.now() at time zone 'UTC')::date - 1, (dibs.now() at time zone 'UTC')::date + ahead, interval '1 day') as d;
end
$$;

comment on function dibs.make_days is
'Make the daily partitions of `job` and `attempt` from yesterday to `ahead` days from now. Answers for each: `made`,
`exists`, `locked` or `crowded`. An enqueue never needs them: without its day a job goes to the default partition.';

create or replace function dibs.prune(max integer default 1000)
returns table (name text, outcome text, jobs bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  v_day record;
begin
  perform dibs.check_isolation('prune');
  for v_day in
    select 'job' as parent, d.name, d.day from dibs.days('job') as d
    where dibs.day_start(d.day + 1) <= v_now - (select max(q.retention) from dibs.queue as q)
    union all
    select 'attempt', d.name, d.day from dibs.days('attempt') as d
    where dibs.day_start(d.day + 1) <= v_now - (select max(q.history_retention) from dibs.queue as q)
    order by 1, 3
  loop
    return query select v_day.name, dibs.drop_day(v_day.parent, v_day.name, v_day.day, v_now), null::bigint;
  end loop;
  return query
  select t.name, 'trimmed', t.rows
  from (values ('job', dibs.trim_jobs(v_now, prune.max)), ('attempt', dibs.trim_attempts(v_now, prune.max)))
    as t (name, rows)
  where t.rows > 0;
end
$$;

comment on function dibs.prune is
'Drop the days that are past every queue''s retention, and delete up to `max` rows that no day takes along. What still
waits, runs, or is dead within retention stays. Answers for each day: `dropped`, `locked` (in use; the next
prune tries again) or `crowded`; and how many rows were `trimmed`.';
