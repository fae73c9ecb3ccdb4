-- Days of job and attempt: made ahead, dropped behind. The only place that executes built statements, with the
-- names of partitions. Nobody but the owner calls these. Locks are waited for 50 ms at most: whoever queues behind
-- a waiting DDL waits with it.

create or replace function dibs.day_start(day date) returns timestamptz
language sql immutable strict parallel safe
return day::timestamp at time zone 'UTC';

comment on function dibs.day_start is 'When a day begins; days are days of UTC.';

create or replace function dibs.day_name(parent text, day date) returns text
language sql immutable strict parallel safe
return parent || '_' || lpad(extract(year from day)::text, 4, '0')
  || lpad(extract(month from day)::text, 2, '0') || lpad(extract(day from day)::text, 2, '0');

comment on function dibs.day_name is 'The name of a day''s partition.';

create or replace function dibs.day_of(name text) returns date
language sql immutable strict parallel safe
return make_date(left(right(name, 8), 4)::integer, substr(right(name, 8), 5, 2)::integer, right(name, 2)::integer);

comment on function dibs.day_of is 'The day in the name of a partition.';

create or replace function dibs.days(parent text) returns table (name text, day date)
language sql stable
begin atomic
  select c.relname::text, dibs.day_of(c.relname::text)
  from pg_catalog.pg_inherits as i
  join pg_catalog.pg_class as c on c.oid = i.inhrelid
  where i.inhparent = ('dibs.' || parent)::regclass and c.relname ~ '_[0-9]{8}$'
  order by 2;
end;

comment on function dibs.days is 'The daily partitions of a table, oldest first.';

create or replace function dibs.make_day(parent text, day date) returns text
language plpgsql volatile
set lock_timeout = '50ms'
as $$
declare
  v_name text := dibs.day_name(parent, day);
  v_from uuid := dibs.id_floor(dibs.day_start(day));
  v_to uuid := dibs.id_floor(dibs.day_start(day + 1));
  v_early bigint;
begin
  if exists (select from dibs.days(parent) as d where d.day = make_day.day) then
    return 'exists';
  end if;
  execute format('select count(*) from (select from dibs.%I where id >= $1 and id < $2 limit 10001) as e',
                 parent || '_default') into v_early using v_from, v_to;
  if v_early > 10000 then
    return 'crowded';  -- Moving them would hold the lock too long; they are trimmed in the default partition.
  end if;
  execute format('create table dibs.%I (like dibs.%I including all)', v_name, parent);
  execute format('lock table dibs.%I in access exclusive mode', parent || '_default');
  if parent = 'attempt' and v_early > 0 then
    perform dibs.count_moving(v_name, v_from, v_to);
  end if;
  execute format(
    'with early as (delete from dibs.%I where id >= $1 and id < $2 returning *) insert into dibs.%I select * from early',
    parent || '_default', v_name) using v_from, v_to;
  execute format('alter table dibs.%I attach partition dibs.%I for values from (%L) to (%L)',
                 parent, v_name, v_from, v_to);
  return 'made';
exception when lock_not_available or deadlock_detected then
  return 'locked';
end
$$;

comment on function dibs.make_day is
'Make a day''s partition and move its rows there from the default one. Answers `made`, `exists`, `locked` (try
again later) or `crowded` (too many rows wait in the default partition; they stay there).';

create or replace function dibs.is_full(parent text) returns boolean
language sql stable
return (select c.relpages > 1000 or pg_relation_size(c.oid) > 8000000 from pg_class as c
        where c.relnamespace = 'dibs'::regnamespace and c.relname = parent || '_default');

comment on function dibs.is_full is 'Whether there is so much in a default partition that looking through it takes time.';

create or replace function dibs.is_live(id uuid, at timestamptz) returns boolean
language sql stable
return exists (select from dibs.ready as r where r.id = is_live.id)
  or exists (select from dibs.lease as l where l.id = is_live.id)
  or exists (select from dibs.blocked as b where b.id = is_live.id)
  or exists (select from dibs.dead as d join dibs.queue as q on q.id = d.queue_id
             where d.id = is_live.id and d.ended_at > at - q.retention);

comment on function dibs.is_live is 'Whether a job still waits, runs, or is dead within its queue''s retention.';

create or replace function dibs.live_in(from_id uuid, to_id uuid, at timestamptz, max integer) returns uuid[]
language sql stable
return array(
  select t.id from (
    select r.id from dibs.ready as r where r.id >= from_id and r.id < to_id
    union all select l.id from dibs.lease as l where l.id >= from_id and l.id < to_id
    union all select b.id from dibs.blocked as b where b.id >= from_id and b.id < to_id
    union all select d.id from dibs.dead as d join dibs.queue as q on q.id = d.queue_id
    where d.id >= from_id and d.id < to_id and d.ended_at > at - q.retention
  ) as t limit max);

comment on function dibs.live_in is 'The live jobs in a range of ids, up to `max` of them.';

create or replace function dibs.drop_day(parent text, name text, at timestamptz) returns text
language plpgsql volatile
set lock_timeout = '50ms'
as $$
declare
  v_day date := dibs.day_of(name);
  v_from uuid := dibs.id_floor(dibs.day_start(v_day));
  v_to uuid := dibs.id_floor(dibs.day_start(v_day + 1));
  v_live uuid[] := '{}'::uuid[];
begin
  if parent = 'job' then
    if cardinality(dibs.live_in(v_from, v_to, at, 1001)) > 1000 then
      return 'crowded';  -- Too many are alive to move them under the lock.
    end if;
  end if;
  execute format('lock table dibs.%I in access exclusive mode', parent);
  if parent = 'job' then
    -- Looked at again now that nobody can write a job: what is alive goes to the default partition.
    v_live := dibs.live_in(v_from, v_to, at, null);
    delete from dibs.dead as d where d.id >= v_from and d.id < v_to and d.id <> all (v_live);
  end if;
  execute format('alter table dibs.%I detach partition dibs.%I', parent, name);
  if v_live <> '{}' then
    execute format('insert into dibs.%I select j.* from dibs.%I as j where j.id = any ($1)', parent, name)
      using v_live;
  end if;
  execute format('drop table dibs.%I', name);
  return 'dropped';
exception when lock_not_available or deadlock_detected then
  return 'locked';
end
$$;

comment on function dibs.drop_day is
'Drop a day''s partition; what is still alive in it moves to the default one. Answers `dropped`, `locked` (try again
later) or `crowded` (more than 1,000 are alive).';

create or replace function dibs.kept_since(at timestamptz, retention interval) returns timestamptz
language sql stable parallel safe
return dibs.day_start(((at - retention) at time zone 'UTC')::date);

comment on function dibs.kept_since is 'The start of the oldest day that a retention keeps.';

create or replace function dibs.trim_jobs(at timestamptz, max integer) returns bigint
language plpgsql volatile
as $$
declare
  v_old uuid[];
  v_trimmed bigint;
begin
  with kept as materialized (
    select q.id, q.retention, dibs.id_floor(dibs.kept_since(at, q.retention)) as since from dibs.queue as q
  )
  select array_agg(o.id) into v_old from (
    select j.id from dibs.job as j join kept as k on k.id = j.queue_id and j.id < k.since
    where j.id < (select n.since from kept as n order by n.since desc limit 1)
      and not dibs.is_live(j.id, at)
      -- A straggler outlived its day; it is kept for its retention from its last attempt on.
      and not exists (select from dibs.attempt as a where a.id = j.id and a.ended_at > at - k.retention)
    limit max
  ) as o;
  delete from dibs.dead as d using dibs.queue as q
  where d.id = any (v_old) and q.id = d.queue_id and d.ended_at <= at - q.retention;
  -- Looked at again: one may have been redriven while we waited for its dead row.
  with gone as (
    delete from dibs.job as j where j.id = any (v_old) and not dibs.is_live(j.id, at) returning 1)
  select count(*) into v_trimmed from gone;
  return v_trimmed;
end
$$;

comment on function dibs.trim_jobs is
'Delete up to `max` jobs past their queue''s retention that no dropped day takes along: stragglers of the default
partition, days too crowded to drop, and those of queues that keep less than the longest.';

create or replace function dibs.trim_attempts(at timestamptz, max integer) returns bigint
language plpgsql volatile
as $$
declare
  v_trimmed bigint;
begin
  with kept as materialized (
    select q.id, at - q.history_retention as until,
      dibs.id_floor(dibs.kept_since(at, q.history_retention)) as since
    from dibs.queue as q
  ), old as materialized (
    select a.id, a.run from dibs.attempt as a join kept as k on k.id = a.queue_id and a.id < k.since
    where a.id < (select n.since from kept as n order by n.since desc limit 1) and a.ended_at < k.until limit max
  ), gone as (
    delete from dibs.attempt as a using old as o where a.id = o.id and a.run = o.run returning 1
  )
  select count(*) into v_trimmed from gone;
  return v_trimmed;
end
$$;

comment on function dibs.trim_attempts is
'Delete up to `max` attempts past their queue''s history retention that no dropped day takes along.';

create or replace function dibs.fresh_attempts(
  name text, from_page bigint, to_page bigint, low bigint, high bigint, next bigint, since timestamptz,
  moved_by bigint, from_id uuid, to_id uuid)
returns setof dibs.fresh_attempt
language plpgsql stable
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_jobs text := 'job' || substr(name, length('attempt') + 1);
begin
  -- xmin has 32 bits; with what is next we know the rest. Some are newer than `next`: a million is more than enough.
  -- A run's job is of the same day, or, seldom, in the default partition.
  return query execute format($read$
    select a.queue_id, coalesce(j.kind, d.kind, ''), a.outcome, a.ended_at,
      case when a.outcome in ('succeeded', 'failed')
        then (date_part('epoch', a.ended_at - a.claimed_at) * 1000000)::bigint end,
      case when a.run = 1
        then greatest((date_part('epoch', a.claimed_at - coalesce(j.due_at, d.due_at)) * 1000000)::bigint, 0) end,
      case when a.xid >= $2 then (a.ctid::text::point)[0]::bigint end
    from (
      select t.*, t.ctid, $3 + 1048576 - ($3 + 1048576 - t.xmin::text::bigint + 4294967296) %% 4294967296 as xid
      from dibs.%I as t where t.ctid >= %L::tid and t.ctid < %L::tid and t.ended_at > $4
        and ($6 is null or t.id >= $6 and t.id < $7)
      offset 0
    ) as a
    left join lateral (select j.kind, j.due_at from dibs.%I as j where j.id = a.id offset 0) as j on true
    left join lateral (
      select d.kind, d.due_at from dibs.job_default as d where d.id = a.id and j.kind is null offset 0) as d on true
    where a.xid >= $1 and a.xid <> $5$read$,
    name, format('(%s,0)', from_page), format('(%s,0)', coalesce(to_page, 4294967295)),
    case when to_regclass('dibs.' || v_jobs) is null then 'job_default' else v_jobs end)
  using low, high, next, since, moved_by, from_id, to_id;
end
$$;

comment on function dibs.fresh_attempts is
'The runs in a stretch of pages of a partition of `attempt` whose transactions are `low` or newer; `page` is set for those
that are not older than `high`. Those that `moved_by` put there were counted elsewhere. A run is timed if it succeeded or failed, its wait if it was the first.';

create or replace function dibs.rows_of(parent text)
returns table (name text, relation oid, filenode oid, pages bigint, inserted bigint)
language sql stable
begin atomic
  select c.relname::text, c.oid, pg_relation_filenode(c.oid)::oid,
    pg_relation_size(c.oid) / current_setting('block_size')::bigint, pg_stat_get_tuples_inserted(c.oid)
  from pg_catalog.pg_inherits as i join pg_catalog.pg_class as c on c.oid = i.inhrelid
  where i.inhparent = ('dibs.' || parent)::regclass
  order by c.relname desc;
end;

comment on function dibs.rows_of is
'The partitions of a table, the newest first: where each is, how many pages it has, and how many rows were ever put in.';
