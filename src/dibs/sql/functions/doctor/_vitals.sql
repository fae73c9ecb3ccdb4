-- The measures of vitals: each row is the name of a metric, the values of its labels, and the number.

create or replace function dibs._measure_tables() returns setof dibs.vital
language sql stable
begin atomic
  select m.name, array[t.name], case m.name when 'table_bytes' then t.bytes else t.dead end
  from (
    select coalesce(r.relname, c.relname)::text as name, sum(pg_total_relation_size(c.oid))::double precision as bytes,
      sum(coalesce(s.n_dead_tup, 0))::double precision as dead
    from pg_catalog.pg_class as c
    left join pg_catalog.pg_class as r on c.relispartition and r.oid = pg_partition_root(c.oid)
    left join pg_catalog.pg_stat_user_tables as s on s.relid = c.oid
    where c.relnamespace = 'dibs'::regnamespace and c.relkind = 'r' group by 1
  ) as t
  cross join (values ('table_bytes'), ('table_dead_rows')) as m (name)
  order by m.name, t.name;
end;

comment on function dibs._measure_tables is
'Measure the size of each table, with its partitions and indexes, and its dead rows.';

create or replace function dibs._measure_horizon(at timestamptz) returns setof dibs.vital
language sql stable
begin atomic
  with holder as materialized (
    select a.xact_start as since, greatest(age(a.backend_xmin), age(a.backend_xid)) as behind
    from pg_catalog.pg_stat_activity as a
    where a.datname = current_database() and a.pid <> pg_backend_pid()
      and num_nonnulls(a.backend_xmin, a.backend_xid) > 0
    union all
    select p.prepared, age(p.transaction) from pg_catalog.pg_prepared_xacts as p where p.database = current_database()
    union all
    select null, greatest(age(s.xmin), age(s.catalog_xmin)) from pg_catalog.pg_replication_slots as s
  )
  select 'horizon_age_seconds', '{}'::text[],
    greatest(coalesce(extract(epoch from max(at - h.since)), 0), 0)::double precision
  from holder as h
  union all
  select 'horizon_transactions', '{}', coalesce(max(h.behind), 0) from holder as h;
end;

comment on function dibs._measure_horizon is
'Measure how long the oldest transaction that holds vacuum back has been open, and by how many transactions vacuum is
held back, by that one or by a replication slot.';

create or replace function dibs._measure_server() returns setof dibs.vital
language sql stable
begin atomic
  select 'notify_queue_ratio', '{}'::text[], pg_notification_queue_usage()
  union all
  select 'connections', '{}', dibs._count_connections()
  union all
  select 'connections_max', '{}', current_setting('max_connections')::integer;
end;

comment on function dibs._measure_server is 'Measure the notification queue and the connections of the server.';

create or replace function dibs._measure_workers(at timestamptz) returns setof dibs.vital
language sql stable
begin atomic
  with worker as (
    select (select count(*) from dibs._live_workers(at)) as live, (select count(*) from dibs.worker) as known)
  select 'workers', array['live'], w.live::double precision from worker as w
  union all
  select 'workers', array['lost'], w.known - w.live from worker as w
  union all
  select 'chore_late_seconds', array[c.name],
    case when c.due_at = '-infinity' then double precision 'infinity'
      else greatest(extract(epoch from clock_timestamp() - c.due_at), 0) end
  from dibs.chore as c
  union all
  select 'chore_failures', array[c.name], c.failures from dibs.chore as c;
end;

comment on function dibs._measure_workers is
'Measure how many workers are alive and how many were lost. For each chore, measure by the real clock how late it is
(infinity if it was never done), and how often it has failed in a row.';

create or replace function dibs._measure_schedules(at timestamptz) returns setof dibs.vital
language sql stable
begin atomic
  select 'schedules', array[s.status], coalesce(f.number, 0)
  from unnest(array['healthy', 'failing', 'paused', 'ended', 'retired']) as s (status)
  left join (select v.status, count(*) as number from dibs.schedules as v group by v.status) as f on f.status = s.status
  union all (
    select 'schedule_late_seconds', array[s.name], greatest(extract(epoch from at - s.tick_at), 0)
    from dibs.schedule as s where s.retired_at is null and s.paused_at is null and s.tick_at is not null
    order by s.tick_at limit 1000);
end;

comment on function dibs._measure_schedules is
'Measure how many schedules have each status, and how late each schedule is, for the 1,000 that are due first.';

create or replace function dibs._measure_limits() returns setof dibs.vital
language sql stable
begin atomic
  with used as materialized (
    select u.id, sum(u.units) as units
    from dibs.lease as l cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units)
    group by u.id
  )
  select m.name, array[r.scope, r.name], m.value
  from dibs.limit_rule as r left join used as h on h.id = r.id
  cross join lateral (
    values ('limit_concurrency', r.concurrency::double precision), ('limit_used', coalesce(h.units, 0)),
      ('limit_blocked', (
        select count(*) from (select from dibs.blocked as b where b.limit_id = r.id limit dibs._count_bound()) as b))
  ) as m (name, value)
  where r.is_set and (r.concurrency is not null or m.name = 'limit_blocked')
  order by m.name, r.scope, r.name limit 3000;
end;

comment on function dibs._measure_limits is
'Measure the concurrency of each limit, its use, and how many jobs wait for it (up to 10,000), for about 1,000 limits.
Groups are left out.';
