-- How far each partition of attempt was counted. docs/run/statistics.md says how the counting comes to be exact.

create or replace function dibs._sync_sources(at timestamptz, horizon bigint) returns void
language plpgsql volatile
as $$
begin
  delete from dibs.stat_source as s where not exists (select from dibs._rows_of('attempt') as r where r.name = s.name);
  delete from dibs.stat_early as e where not exists (select from dibs.stat_source as s where s.name = e.source);
  -- Rewritten by VACUUM FULL: rows keep their transactions but not their places. Restored from a dump: neither; what
  -- is there was counted before the dump.
  update dibs.stat_source as s
  set relation = r.relation, filenode = r.filenode, pages = '{0}',
    horizons = array[case when r.relation = s.relation then (select max(h) from unnest(s.horizons) as h) else horizon end],
    moved_by = -1, inserted = -1, swept = 0
  from dibs._rows_of('attempt') as r
  where r.name = s.name and (r.relation, r.filenode) is distinct from (s.relation, s.filenode);
  insert into dibs.stat_source (name, relation, filenode, pages, horizons, read_at, sweep_at)
  select r.name, r.relation, r.filenode, '{0}', '{0}', _sync_sources.at, _sync_sources.at + interval '10 minutes'
  from dibs._rows_of('attempt') as r
  on conflict do nothing;
end
$$;

comment on function dibs._sync_sources is 'Begin to read partitions that are new, and forget those that are gone.';

create or replace function dibs._count_moving(target text, from_id uuid, to_id uuid) returns void
language plpgsql volatile
as $$
declare
  v_now timestamptz := dibs.now();
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  v_source dibs.stat_source;
  v_mine bigint;
begin
  -- A roll_up that is at work would count them a second time in their new place; waited for as long as for any lock here.
  perform pg_advisory_xact_lock(20003, 3);
  select * into v_source from dibs.stat_source as s where s.name = 'attempt_default';
  if not found then
    return;
  end if;
  -- Nobody else can write there now, so all that is to be seen is there for good.
  for n in 1 .. cardinality(v_source.pages) loop
    perform dibs._tally('attempt_default', v_source.pages[n], v_source.pages[n + 1], v_source.horizons[n],
      9223372036854775807, v_next, case when v_source.horizons[n] > 0 then v_source.read_at - interval '7 days'
        else '-infinity' end, v_now, v_source.moved_by, from_id, to_id);
  end loop;
  -- The rows will be those of the subtransaction we are in, which nothing but a row tells.
  insert into dibs.stat_source as s (name, relation, filenode, pages, horizons, read_at, sweep_at)
  select target, c.oid, pg_relation_filenode(c.oid), '{0}', '{0}', v_now, v_now + interval '10 minutes'
  from pg_class as c where c.relnamespace = 'dibs'::regnamespace and c.relname = target
  returning s.xmin::text::bigint into v_mine;
  update dibs.stat_source as s
  set moved_by = v_next + 1048576 - (v_next + 1048576 - v_mine + 4294967296) % 4294967296 where s.name = target;
end
$$;

comment on function dibs._count_moving is
'Count those runs that are about to be moved from the default partition to a new day and were not counted yet.';

create or replace function dibs._read_tail(
  source dibs.stat_source, size bigint, inserted bigint, high bigint, next bigint, at timestamptz, budget bigint,
  out counted bigint, out more boolean)
language plpgsql volatile
as $$
declare
  v_n integer := cardinality(source.pages);
  v_from bigint := source.pages[v_n];
  v_to bigint := case when size - v_from > budget then v_from + budget end;
  v_early_page bigint;
begin
  delete from dibs.stat_early as e where e.source = _read_tail.source.name;
  select t.counted, t.early_page into _read_tail.counted, v_early_page
  from dibs._tally(source.name, v_from, v_to, source.horizons[v_n], high, next,
    case when source.horizons[v_n] > 0 then source.read_at - interval '7 days' else '-infinity' end, at,
    source.moved_by) as t;
  more := v_to is not null;
  source.horizons[v_n] := high;
  -- A stretch is closed when it is long, its pages are full, and all that is in it is counted for good. The last pages
  -- stay open: others may be filling them. What comes into a closed stretch after all is found by read_again.
  if not more and size - 128 - v_from >= 512 then
    v_to := least(size - 128, v_early_page);
  end if;
  if v_to - v_from >= 512 or more then
    source.pages := source.pages || v_to;
    source.horizons := source.horizons || case when more then 0 else high end;
  end if;
  update dibs.stat_source as s
  set pages = source.pages, horizons = source.horizons, inserted = case when more then -1 else _read_tail.inserted end,
    read_at = _read_tail.at
  where s.name = source.name;
end
$$;

comment on function dibs._read_tail is
'Count what is new in the open stretch of a partition, up to `budget` pages, and close it when it is long enough.';

create or replace function dibs._read_again(
  source dibs.stat_source, inserted bigint, high bigint, next bigint, at timestamptz, budget bigint) returns bigint
language plpgsql volatile
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_n integer := greatest(source.swept, 1);
  v_counted bigint := 0;
begin
  while v_n < cardinality(source.pages) and budget > 0 loop
    select v_counted + t.counted into v_counted
    from dibs._tally(source.name, source.pages[v_n], source.pages[v_n + 1], source.horizons[v_n], high, next,
      source.read_at - interval '7 days', at, source.moved_by, early_too => false) as t;
    source.horizons[v_n] := high;
    budget := budget - (source.pages[v_n + 1] - source.pages[v_n]);
    v_n := v_n + 1;
  end loop;
  update dibs.stat_source as s
  set horizons = source.horizons,
    swept_inserted = case when source.swept > 0 then source.swept_inserted else _read_again.inserted end, swept = case when v_n < cardinality(source.pages) then v_n else 0 end,
    sweep_at = _read_again.at + case when v_n < cardinality(source.pages) then 20 * (clock_timestamp() - v_began)
      else greatest(interval '10 minutes', 20 * (clock_timestamp() - v_began)) end
  where s.name = source.name;
  return v_counted;
end
$$;

comment on function dibs._read_again is
'Read the closed stretches of a partition again, up to `budget` pages, for runs that were committed late or put into
freed space.';

create or replace function dibs._fresh_attempts(
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
  -- A run's job is of the same day, or, rarely, in the default partition.
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

comment on function dibs._fresh_attempts is
'The runs in a stretch of pages of a partition of `attempt` whose transactions are `low` or newer; `page` is set for those
that are not older than `high`. Those that `moved_by` put there were counted elsewhere. A run is timed if it succeeded or failed, its wait if it was the first.';

create or replace function dibs._rows_of(parent text)
returns table (name text, relation oid, filenode oid, pages bigint, inserted bigint)
language sql stable
begin atomic
  select c.relname::text, c.oid, pg_relation_filenode(c.oid)::oid,
    pg_relation_size(c.oid) / current_setting('block_size')::bigint, pg_stat_get_tuples_inserted(c.oid)
  from pg_catalog.pg_inherits as i join pg_catalog.pg_class as c on c.oid = i.inhrelid
  where i.inhparent = ('dibs.' || parent)::regclass
  order by c.relname desc;
end;

comment on function dibs._rows_of is
'The partitions of a table, the newest first: where each is, how many pages it has, and how many rows were ever put in.';
