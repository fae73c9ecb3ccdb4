-- The server: settings, version, connections, and the clocks of workers.

create or replace function dibs._find_bad_settings() returns setof dibs.finding
language sql stable
begin atomic
  select 'setting', b.level, format('%s is %s', b.name, b.value), b.reason, b.fix, b.name
  from (
    values
      ('fsync', 'off', 'error', 'After a crash of the machine the whole database may be lost.',
       'alter system set fsync = on;'),
      ('full_page_writes', 'off', 'error', 'After a crash of the machine pages may be torn.',
       'alter system set full_page_writes = on;'),
      ('synchronous_commit', 'off', 'warning',
       'A crash of the server loses the jobs of the last moment, although enqueue had answered.',
       'set it to on for the roles of producers: alter role … set synchronous_commit = on;'),
      ('autovacuum', 'off', 'error', 'Dead rows stay in every table for good.', 'alter system set autovacuum = on;'),
      ('track_counts', 'off', 'error', 'Autovacuum does not know which tables to vacuum.',
       'alter system set track_counts = on;'),
      ('track_io_timing', 'off', 'note', 'Nobody can say how much of the time goes to the disk.',
       'alter system set track_io_timing = on;'),
      ('idle_in_transaction_session_timeout', '0', 'note',
       'A transaction that somebody forgot holds vacuum back until it is found.',
       'alter system set idle_in_transaction_session_timeout = ''10min'';')
  ) as b (name, value, level, reason, fix)
  where current_setting(b.name) = b.value
  union all
  select 'setting', 'note', format('max_wal_size is %s', current_setting('max_wal_size')),
    'Under load there are more checkpoints than needed, and after each one all pages are written to the WAL as a'
      ' whole.',
    'alter system set max_wal_size = ''4GB'';', 'max_wal_size'
  where pg_size_bytes(current_setting('max_wal_size')) < pg_size_bytes('1 GB');
end;

comment on function dibs._find_bad_settings is 'Find settings that risk data or cost time, as this session has them.';

create or replace function dibs._find_old_server(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'server-version', case when e.until < at then 'error' else 'warning' end,
    format('PostgreSQL %s %s fixed after %s', e.major,
      case when e.until < at then 'is not' else 'will not be' end, to_char(e.until, 'YYYY-MM-DD')),
    'No more fixes, not even for security.', 'upgrade to a newer major version: docs/run/upgrading.md', e.major::text
  from (
    values (15, timestamptz '2027-11-11'), (16, '2028-11-09'), (17, '2029-11-08'), (18, '2030-11-14')
  ) as e (major, until)
  where e.major = current_setting('server_version_num')::integer / 10000 and e.until < at + interval '180 days';
end;

comment on function dibs._find_old_server is
'Find a major version whose support has ended or ends within 180 days. The dates are those of the PostgreSQL project.';

create or replace function dibs._count_connections() returns bigint
language sql stable
begin atomic
  -- Without pg_read_all_stats the backend_type of other roles' sessions is null. Background processes lack a user or a
  -- database.
  select count(*) from pg_catalog.pg_stat_activity as a
  where coalesce(a.backend_type, 'client backend') = 'client backend' and num_nulls(a.datid, a.usesysid) = 0;
end;

comment on function dibs._count_connections is
'Return the number of connections of clients to the server, to any database.';

create or replace function dibs._find_few_connections() returns setof dibs.finding
language sql stable
begin atomic
  select 'connections', case when u.used >= u.room then 'error' else 'warning' end,
    format('%s of %s connections are in use', u.used, u.room),
    'A worker that cannot connect cannot report how its jobs ended, and they run again.',
    'use a pooler for web servers, or raise max_connections', null
  from (
    select dibs._count_connections() as used,
      current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer as room
  ) as u
  where u.used > 0.8 * u.room;
end;

comment on function dibs._find_few_connections is 'Find a server with more than 80 % of its connections in use.';

create or replace function dibs._find_clock_gaps(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'clock', 'warning',
    format('the clock of worker %s on %s is %s s %s', w.id, coalesce(w.facts ->> 'host', w.name), round(abs(g.seconds)),
      case when g.seconds > 0 then 'ahead' else 'behind' end),
    'Only the database''s clock decides, so no job is harmed; but times in logs and due times that its code computes'
      ' are off.',
    'let NTP or chrony set the clock of that machine', w.id::text
  from dibs.worker as w
  cross join lateral (
    select (w.facts ->> 'clock')::numeric - extract(epoch from w.started_at) as seconds
    where jsonb_typeof(w.facts -> 'clock') = 'number') as g
  where abs(g.seconds) > 5 and w.seen_at > at - interval '1 minute'
  order by w.id limit 20;
end;

comment on function dibs._find_clock_gaps is
'Find live workers whose clock was wrong by more than 5 seconds when they started.';
