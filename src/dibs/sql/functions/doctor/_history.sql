-- Daily partitions that are missing or should have been dropped, and chores that are late or fail.

create or replace function dibs._find_missing_days(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'missing-day', 'warning', format('dibs.%s has no partition for %s', p.parent, to_char(d.day, 'YYYY-MM-DD')),
    'Its rows go to the default partition, where old rows cannot leave by dropping a day.',
    'select * from dibs.make_days(); and see that a worker does the upkeep',
    p.parent || '_' || to_char(d.day, 'YYYY-MM-DD')
  from (values ('job'), ('attempt')) as p (parent)
  cross join lateral (
    select (at at time zone 'UTC')::date + n as day from generate_series(0, 1) as n) as d
  where not exists (select from dibs._day_partitions(p.parent) as made where made.day = d.day);
end;

comment on function dibs._find_missing_days is 'Find the partitions of today and tomorrow that are missing.';

create or replace function dibs._find_full_default_partitions() returns setof dibs.finding
language sql stable
begin atomic
  select 'default-partition', 'warning',
    format('dibs.%s_default has %s', p.parent,
      pg_size_pretty(pg_relation_size(to_regclass('dibs.' || p.parent || '_default')))),
    'It has the rows of days without a partition. They are trimmed row by row, and a new day scans it under a lock.',
    'see that days are made ahead: select * from dibs.make_days(); old rows leave by: select * from dibs.prune();',
    p.parent
  from (values ('job'), ('attempt')) as p (parent)
  where dibs._is_default_large(p.parent);
end;

comment on function dibs._find_full_default_partitions is 'Find default partitions that fill up.';

create or replace function dibs._find_old_days(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'retention', 'warning',
    format('dibs.%s has %s days that should be gone; the oldest is %s', p.parent, count(*), min(d.day)),
    'They cost disk, and time for planning each lookup.',
    'select * from dibs.prune(); if it says `locked`, a long transaction reads that table', p.parent
  from (
    select 'job' as parent, max(q.retention) as keep from dibs.queue as q
    union all select 'attempt', max(q.history_retention) from dibs.queue as q) as p
  cross join lateral dibs._day_partitions(p.parent) as d
  where dibs._day_start(d.day + 3) <= at - p.keep
  group by p.parent;
end;

comment on function dibs._find_old_days is 'Find days that prune should have dropped at least two days ago.';

create or replace function dibs._find_old_audit(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'retention', 'warning', format('the audit has rows that should be gone; the oldest is of %s', a.at::date),
    'They cost disk, and may be kept for longer than you promised.',
    'see that a worker does the upkeep; by hand: select dibs.forget();', 'audit'
  from (select o.at from dibs.audit as o order by o.id limit 1) as a cross join dibs.setting as s
  where a.at < _find_old_audit.at - s.audit_retention - interval '2 days';
end;

comment on function dibs._find_old_audit is
'Find audit rows that the upkeep should have deleted at least two days ago.';

create or replace function dibs._find_late_chores() returns setof dibs.finding
language sql stable
begin atomic
  select 'upkeep', 'error',
    case when not exists (select from dibs.chore as o where o.done_at > '-infinity')
      then 'no chore of the upkeep was ever done'
      else format('%s late: %s', case count(*) when 1 then 'a chore is' else count(*) || ' chores are' end,
        string_agg(c.name, ', ' order by c.name)) end,
    'Without it lost jobs are not rescued, nothing expires, schedules do not fire and old days stay.',
    'run a worker without --no-upkeep, or dibs maintain, or from cron: select * from dibs.maintain();', null
  from dibs.chore as c
  where c.due_at < clock_timestamp() - greatest(interval '5 minutes', 5 * c.every)
    and exists (select from dibs.job)
  having count(*) > 0;
end;

comment on function dibs._find_late_chores is 'Find chores that no process does.';

create or replace function dibs._find_failing_chores() returns setof dibs.finding
language sql stable
begin atomic
  select 'chore-failing', 'error', format('%s has failed %s times in a row: %s', c.name, c.failures, c.error),
    'It is tried again and again, and its work is not done.',
    'read the error; the view dibs.chores has all of them', c.name
  from dibs.chore as c where c.failures > 0 order by c.name;
end;

comment on function dibs._find_failing_chores is 'Find chores that fail.';
