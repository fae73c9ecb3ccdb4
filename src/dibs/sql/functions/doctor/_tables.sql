-- Dead rows, bloated indexes, and the notification queue of the server.

create or replace function dibs._find_dead_rows() returns setof dibs.finding
language sql stable
begin atomic
  select 'dead-rows', 'warning',
    format('dibs.%s has %s dead rows beside %s; it was vacuumed %s', s.relname, s.n_dead_tup, s.n_live_tup,
      coalesce(dibs._duration_text(clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum)) || ' ago', 'never')),
    'Autovacuum starts at a few thousand. It is off, cannot keep up, or an old transaction keeps the rows.',
    format('vacuum (verbose) dibs.%s; and see what else is found here', s.relname), s.relname
  from pg_catalog.pg_stat_user_tables as s
  where s.schemaname = 'dibs' and s.n_dead_tup > greatest(50000, s.n_live_tup)
  order by s.n_dead_tup desc;
end;

comment on function dibs._find_dead_rows is 'Find tables with far more dead rows than autovacuum should leave.';

create or replace function dibs._find_bloat() returns setof dibs.finding
language sql stable
begin atomic
  -- An index entry takes 16 to 64 bytes. At 1,000 bytes for each row, most pages are empty.
  select 'bloat', 'warning',
    format('the index dibs.%s has %s for %s rows', i.relname, pg_size_pretty(s.size), s.rows::bigint),
    'Empty pages stay in an index after a large backlog. They cost memory, and time for each vacuum.',
    format('reindex index concurrently dibs.%I;', i.relname), i.relname
  from pg_catalog.pg_index as x
  join pg_catalog.pg_class as i on i.oid = x.indexrelid and i.relkind = 'i'
  join pg_catalog.pg_class as t on t.oid = x.indrelid
  cross join lateral (
    -- reltuples is -1 before the first vacuum, and old after many inserts.
    select pg_relation_size(i.oid) as size,
      greatest(t.reltuples, pg_stat_get_live_tuples(t.oid), 0)::double precision as rows) as s
  where t.relnamespace = 'dibs'::regnamespace and s.size > greatest(8000000, 1000 * s.rows)
  order by s.size desc;
end;

comment on function dibs._find_bloat is 'Find indexes that are mostly empty.';

create or replace function dibs._find_full_notify_queue(used double precision) returns setof dibs.finding
language sql stable
begin atomic
  select 'notify-queue', case when used > 0.5 then 'error' else 'warning' end,
    format('the queue of notifications is %s %% full', round((used * 100)::numeric)),
    'When it is full, every NOTIFY fails, and with it each transaction that rings for a job.',
    'end the session that listens and stays in a transaction: '
      || 'select pid, usename, state, xact_start from pg_stat_activity order by xact_start;', null
  where used > 0.1;
end;

comment on function dibs._find_full_notify_queue is
'Find a notification queue that fills up. `used`: how full it is, from 0 to 1.';
