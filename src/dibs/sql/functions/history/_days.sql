-- Daily partitions of job and attempt. Statements are built as text here, from the names of partitions. DDL waits at
-- most 50 ms for its lock, because every other statement on the table queues behind a DDL that waits.

create or replace function dibs._day_start(day date) returns timestamptz
language sql immutable strict parallel safe
return day::timestamp at time zone 'UTC';

comment on function dibs._day_start is 'The moment when a day begins, in UTC.';

create or replace function dibs._day_name(parent text, day date) returns text
language sql immutable strict parallel safe
return parent || '_' || lpad(extract(year from day)::text, 4, '0')
  || lpad(extract(month from day)::text, 2, '0') || lpad(extract(day from day)::text, 2, '0');

comment on function dibs._day_name is 'The name of a day''s partition, such as job_20260131.';

create or replace function dibs._partition_day(name text) returns date
language sql immutable strict parallel safe
return make_date(left(right(name, 8), 4)::integer, substr(right(name, 8), 5, 2)::integer, right(name, 2)::integer);

comment on function dibs._partition_day is 'The day in the name of a partition.';

create or replace function dibs._day_partitions(parent text) returns table (name text, day date)
language sql stable
begin atomic
  select c.relname::text, dibs._partition_day(c.relname::text)
  from pg_catalog.pg_inherits as i
  join pg_catalog.pg_class as c on c.oid = i.inhrelid
  where i.inhparent = ('dibs.' || parent)::regclass and c.relname ~ '_[0-9]{8}$'
  order by 2;
end;

comment on function dibs._day_partitions is
'The daily partitions of `job` or `attempt`, oldest first, without the default partition.';

create or replace function dibs._make_day(parent text, day date) returns text
language plpgsql volatile
set lock_timeout = '50ms'
as $$
declare
  c_max constant integer := 10000;  -- To move more would hold the lock too long.
  v_name text := dibs._day_name(parent, day);
  v_from_id uuid := dibs._id_floor(dibs._day_start(day));
  v_to_id uuid := dibs._id_floor(dibs._day_start(day + 1));
  v_in_default bigint;
begin
  if exists (select from dibs._day_partitions(parent) as d where d.day = _make_day.day) then
    return 'exists';
  end if;
  execute format('select count(*) from (select from dibs.%I where id >= $1 and id < $2 limit $3) as r',
                 parent || '_default') into v_in_default using v_from_id, v_to_id, c_max + 1;
  if v_in_default > c_max then
    return 'crowded';
  end if;
  -- If the day has rows already, or may get some now, lock the parent: statements that wait for the lock plan again
  -- afterwards. A plan from before knows only the default partition: it would not find the rows that move here, and
  -- PostgreSQL would refuse its inserts there.
  if v_in_default > 0 or day <= (dibs.now() at time zone 'UTC')::date then
    execute format('lock table dibs.%I in access exclusive mode', parent);
  end if;
  execute format('create table dibs.%I (like dibs.%I including all)', v_name, parent);
  execute format('lock table dibs.%I in access exclusive mode', parent || '_default');
  execute format(
    'with moved as (delete from dibs.%I where id >= $1 and id < $2 returning *)
     insert into dibs.%I select * from moved', parent || '_default', v_name) using v_from_id, v_to_id;
  execute format('alter table dibs.%I attach partition dibs.%I for values from (%L) to (%L)',
                 parent, v_name, v_from_id, v_to_id);
  return 'made';
exception when lock_not_available or deadlock_detected then
  return 'locked';
end
$$;

comment on function dibs._make_day is
'Create the partition of a day and move the day''s rows there from the default partition. Return `made`, `exists`,
`locked` (no lock within 50 ms: try again later) or `crowded` (more than 10,000 rows: they stay in the default
partition, and `prune` deletes them row by row).';

create or replace function dibs._is_default_large(parent text) returns boolean
language sql stable
return pg_relation_size(to_regclass('dibs.' || parent || '_default')) > pg_size_bytes('8 MB');

comment on function dibs._is_default_large is
'True if the default partition has more than 8 MB, so that a scan of it takes time.';

create or replace function dibs._is_live_job(id uuid, at timestamptz) returns boolean
language sql stable
return exists (select from dibs.ready as r where r.id = _is_live_job.id)
  or exists (select from dibs.lease as l where l.id = _is_live_job.id)
  or exists (select from dibs.blocked as b where b.id = _is_live_job.id)
  or exists (select from dibs.dead as d join dibs.queue as q on q.id = d.queue_id
             where d.id = _is_live_job.id and d.ended_at > at - q.retention);

comment on function dibs._is_live_job is 'True if a job waits, runs, or is dead within its queue''s retention.';

create or replace function dibs._find_live_jobs(from_id uuid, to_id uuid, at timestamptz, max integer) returns uuid[]
language sql stable
return array(
  select t.id from (
    select r.id from dibs.ready as r where r.id >= from_id and r.id < to_id
    union all select l.id from dibs.lease as l where l.id >= from_id and l.id < to_id
    union all select b.id from dibs.blocked as b where b.id >= from_id and b.id < to_id
    union all select d.id from dibs.dead as d join dibs.queue as q on q.id = d.queue_id
    where d.id >= from_id and d.id < to_id and d.ended_at > at - q.retention
  ) as t limit max);

comment on function dibs._find_live_jobs is
'The live jobs (_is_live_job) with from_id <= id < to_id: up to `max` of them, or all if `max` is null.';

create or replace function dibs._max_live_jobs() returns integer
language sql immutable parallel safe
return 1000;

comment on function dibs._max_live_jobs is
'The number of live jobs that may move to the default partition when their day is dropped. To move more would hold the
lock too long.';

create or replace function dibs._drop_day(parent text, name text, at timestamptz) returns text
language plpgsql volatile
set lock_timeout = '50ms'
as $$
declare
  v_day date := dibs._partition_day(name);
  v_from_id uuid := dibs._id_floor(dibs._day_start(v_day));
  v_to_id uuid := dibs._id_floor(dibs._day_start(v_day + 1));
  v_live uuid[] := '{}'::uuid[];
begin
  if parent = 'job'
    and cardinality(dibs._find_live_jobs(v_from_id, v_to_id, at, dibs._max_live_jobs() + 1)) > dibs._max_live_jobs()
  then
    return 'crowded';
  end if;
  execute format('lock table dibs.%I in access exclusive mode', parent);
  if parent = 'job' then
    -- Look again, now that no job can change. Live jobs move to the default partition.
    v_live := dibs._find_live_jobs(v_from_id, v_to_id, at, null);
    delete from dibs.dead as d where d.id >= v_from_id and d.id < v_to_id and d.id <> all (v_live);
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

comment on function dibs._drop_day is
'Drop the partition of a day. Its live jobs move to the default partition. Return `dropped`, `locked` (no lock within 50
ms: try again later) or `crowded` (more than 1,000 live jobs).';
