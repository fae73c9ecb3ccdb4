-- What roll_up and statistics are made of. Nobody but the owner calls these. docs/run/statistics.md says how the counting
-- comes to be exact.

create or replace function dibs.bar_of(us bigint) returns integer
language sql immutable parallel safe
return case when us is not null then least(greatest(
  ceil(4 * ln(greatest(us, 1) / 100.0::double precision) / ln(2::double precision))::integer + 1, 1), 160) end;

comment on function dibs.bar_of is
'Which bar of a histogram a duration falls into: bar 1 is up to 100 µs, and each bar reaches 2^(1/4) times further.';

create or replace function dibs.bar_end(bar integer) returns double precision
language sql immutable strict parallel safe
return 100 * power(2::double precision, (bar - 1) / 4.0::double precision);

comment on function dibs.bar_end is 'How far a bar of a histogram reaches, in microseconds.';

create or replace function dibs.bars(these integer[], counts numeric[]) returns bigint[]
language sql immutable parallel safe
return coalesce((
  select array_agg(coalesce(c.n, 0)::bigint order by s.bar)
  from generate_series(1, (select max(b) from unnest(these) as b)) as s (bar)
  left join (select b.bar, sum(b.n) as n from unnest(these, counts) as b (bar, n) group by b.bar) as c on c.bar = s.bar), '{}');

comment on function dibs.bars is
'A histogram as an array of how many there are in each bar, from how many are in these; what is beyond its end is zero.';

create or replace function dibs.add_bars(one bigint[], other bigint[]) returns bigint[]
language sql immutable parallel safe
return coalesce((
  select array_agg(coalesce(b.one, 0) + coalesce(b.other, 0) order by b.n)
  from unnest(one, other) with ordinality as b (one, other, n)), '{}');

comment on function dibs.add_bars is 'The sum of two histograms.';

create or replace function dibs.quantile(counts bigint[], part double precision, max_us bigint) returns interval
language sql immutable parallel safe
begin atomic
  -- Inside a bar durations are taken to be spread evenly on the scale of the bars.
  select least(max_us, dibs.bar_end(c.bar::integer) * power(2::double precision,
      ((c.total * part - (c.upto - c.count)) / c.count - 1) / 4.0)) * interval '1 microsecond'
  from (
    select b.bar, b.count, sum(b.count) over (order by b.bar) as upto, sum(b.count) over () as total
    from unnest(counts) with ordinality as b (count, bar) where b.count > 0
  ) as c
  where c.upto >= c.total * part
  order by c.bar limit 1;
end;

comment on function dibs.quantile is
'The duration that `part` of the durations in a histogram do not exceed, to within a bar''s width; null when it is empty.';

create or replace function dibs.tally(
  source text, from_page bigint, to_page bigint, low bigint, high bigint, next bigint, since timestamptz,
  at timestamptz, moved_by bigint, from_id uuid default null, to_id uuid default null, early_too boolean default true,
  out counted bigint, out early_page bigint)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_setting dibs.setting := (select s from dibs.setting as s);
begin
  with fresh as materialized (
    select f.page is null as settled, f.queue_id, f.kind, date_trunc('minute', f.ended_at) as minute, f.outcome,
      dibs.bar_of(f.run_us) as run_bar, dibs.bar_of(f.wait_us) as wait_bar, count(*) as n, sum(f.run_us) as run_us,
      max(f.run_us) as run_max_us, sum(f.wait_us) as wait_us, max(f.wait_us) as wait_max_us, max(f.ended_at) as ended_at,
      max(array[(date_part('epoch', f.ended_at) * 1000000)::bigint, f.run_us]) as last, min(f.page) as page
    from dibs.fresh_attempts(source, from_page, to_page, low, high, next, since, moved_by, from_id, to_id) as f
    group by 1, 2, 3, 4, 5, 6, 7
  ), sums as materialized (
    select f.settled, dibs.shown_queue(f.queue_id) as queue_id, f.kind, g.grain, g.at,
      coalesce(sum(f.n) filter (where f.outcome = 'succeeded'), 0) as succeeded,
      coalesce(sum(f.n) filter (where f.outcome = 'failed'), 0) as failed,
      coalesce(sum(f.n) filter (where f.outcome = 'lost'), 0) as lost,
      coalesce(sum(f.n) filter (where f.outcome = 'snoozed'), 0) as snoozed,
      coalesce(sum(f.n) filter (where f.outcome = 'released'), 0) as released,
      coalesce(sum(f.n) filter (where f.outcome = 'cancelled'), 0) as cancelled,
      coalesce(sum(f.n) filter (where f.run_bar is not null), 0) as runs, coalesce(sum(f.run_us), 0) as run_us,
      coalesce(max(f.run_max_us), 0) as run_max_us,
      coalesce(sum(f.n) filter (where f.wait_bar is not null), 0) as waits, coalesce(sum(f.wait_us), 0) as wait_us,
      coalesce(max(f.wait_max_us), 0) as wait_max_us,
      max(f.ended_at) filter (where f.run_bar is not null) as last_at,
      (max(f.last) filter (where f.run_bar is not null))[2] as last_us,
      dibs.bars(array_agg(f.run_bar) filter (where f.run_bar is not null),
        array_agg(f.n::numeric) filter (where f.run_bar is not null)) as run_counts,
      dibs.bars(array_agg(f.wait_bar) filter (where f.wait_bar is not null),
        array_agg(f.n::numeric) filter (where f.wait_bar is not null)) as wait_counts
    from fresh as f
    cross join lateral (values
      ('minute', f.minute), ('hour', date_trunc('hour', f.minute, 'UTC')), ('ever', timestamptz 'epoch')) as g (grain, at)
    where case g.grain when 'minute' then not f.settled or g.at > tally.at - v_setting.stat_minutes
      when 'hour' then f.settled and g.at > tally.at - v_setting.stat_hours else f.settled end
    group by 1, 2, 3, 4, 5
  ), added as (
    insert into dibs.stat as s (queue_id, kind, grain, at, succeeded, failed, lost, snoozed, released, cancelled, runs,
      run_us, run_max_us, waits, wait_us, wait_max_us, last_at, last_us, run_counts, wait_counts)
    select n.queue_id, n.kind, n.grain, n.at, n.succeeded, n.failed, n.lost, n.snoozed, n.released, n.cancelled, n.runs,
      n.run_us, n.run_max_us, n.waits, n.wait_us, n.wait_max_us, n.last_at, n.last_us, n.run_counts, n.wait_counts
    from sums as n where n.settled
    on conflict (queue_id, kind, grain, at) do update set
      succeeded = s.succeeded + excluded.succeeded, failed = s.failed + excluded.failed, lost = s.lost + excluded.lost,
      snoozed = s.snoozed + excluded.snoozed, released = s.released + excluded.released,
      cancelled = s.cancelled + excluded.cancelled, runs = s.runs + excluded.runs, run_us = s.run_us + excluded.run_us,
      run_max_us = greatest(s.run_max_us, excluded.run_max_us), waits = s.waits + excluded.waits,
      wait_us = s.wait_us + excluded.wait_us, wait_max_us = greatest(s.wait_max_us, excluded.wait_max_us),
      last_at = greatest(s.last_at, excluded.last_at),
      last_us = case when s.last_at > excluded.last_at then s.last_us else coalesce(excluded.last_us, s.last_us) end,
      run_counts = dibs.add_bars(s.run_counts, excluded.run_counts),
      wait_counts = dibs.add_bars(s.wait_counts, excluded.wait_counts)
  ), awaited as (
    insert into dibs.stat_early (source, queue_id, kind, grain, at, succeeded, failed, lost, snoozed, released, cancelled,
      runs, run_us, run_max_us, waits, wait_us, wait_max_us, last_at, last_us, run_counts, wait_counts)
    select tally.source, n.queue_id, n.kind, n.grain, n.at, n.succeeded, n.failed, n.lost, n.snoozed, n.released,
      n.cancelled, n.runs, n.run_us, n.run_max_us, n.waits, n.wait_us, n.wait_max_us, n.last_at, n.last_us,
      n.run_counts, n.wait_counts
    from sums as n where not n.settled and early_too
  )
  select coalesce(sum(f.n) filter (where f.settled), 0), min(f.page) into tally.counted, tally.early_page from fresh as f;
end
$$;

comment on function dibs.tally is
'Count the runs in a stretch of pages whose transactions are `low` or newer: those older than `high` for good, the rest
until the next round. Says how many were for good, and the first page with one that was not.';

create or replace function dibs.count_unrun(at timestamptz) returns bigint
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_setting dibs.setting := (select s from dibs.setting as s);
  v_jobs bigint;
begin
  if not exists (select from dibs.stat_unrun) then
    return 0;
  end if;
  with gone as (
    delete from dibs.stat_unrun returning *
  ), added as (
    insert into dibs.stat as s (queue_id, kind, grain, at, expired, cancelled)
    select dibs.shown_queue(u.queue_id), u.kind, g.grain, g.at, coalesce(sum(u.jobs) filter (where u.state = 'expired'), 0),
      coalesce(sum(u.jobs) filter (where u.state = 'cancelled'), 0)
    from gone as u
    cross join lateral (values
      ('minute', date_trunc('minute', u.at)), ('hour', date_trunc('hour', u.at, 'UTC')),
      ('ever', timestamptz 'epoch')) as g (grain, at)
    where case g.grain when 'minute' then g.at > count_unrun.at - v_setting.stat_minutes
      when 'hour' then g.at > count_unrun.at - v_setting.stat_hours else true end
    group by 1, 2, 3, 4
    on conflict (queue_id, kind, grain, at) do update set
      expired = s.expired + excluded.expired, cancelled = s.cancelled + excluded.cancelled
  )
  select coalesce(sum(g.jobs), 0) into v_jobs from gone as g;
  return v_jobs;
end
$$;

comment on function dibs.count_unrun is 'Count the jobs that ended without a run. Returns how many there were.';

create or replace function dibs.note_unrun(ids uuid[], state text, at timestamptz) returns void
language sql volatile
begin atomic
  insert into dibs.stat_unrun (queue_id, kind, at, state, jobs)
  select j.queue_id, j.kind, note_unrun.at, note_unrun.state, count(*)
  from unnest(ids) as k (id)
  cross join lateral (select j.queue_id, j.kind from dibs.job as j where j.id = k.id offset 0) as j
  group by 1, 2;
end;

comment on function dibs.note_unrun is 'Note jobs that ended without a run, for the next roll_up.';

create or replace function dibs.sync_sources(at timestamptz, horizon bigint) returns void
language plpgsql volatile
as $$
begin
  delete from dibs.stat_source as s where not exists (select from dibs.rows_of('attempt') as r where r.name = s.name);
  delete from dibs.stat_early as e where not exists (select from dibs.stat_source as s where s.name = e.source);
  -- Rewritten by VACUUM FULL: rows keep their transactions but not their places. Restored from a dump: neither; what
  -- is there was counted before the dump.
  update dibs.stat_source as s
  set relation = r.relation, filenode = r.filenode, pages = '{0}',
    horizons = array[case when r.relation = s.relation then (select max(h) from unnest(s.horizons) as h) else horizon end],
    moved_by = -1, inserted = -1, swept = 0
  from dibs.rows_of('attempt') as r
  where r.name = s.name and (r.relation, r.filenode) is distinct from (s.relation, s.filenode);
  insert into dibs.stat_source (name, relation, filenode, pages, horizons, read_at, sweep_at)
  select r.name, r.relation, r.filenode, '{0}', '{0}', sync_sources.at, sync_sources.at + interval '10 minutes'
  from dibs.rows_of('attempt') as r
  on conflict do nothing;
end
$$;

comment on function dibs.sync_sources is 'Begin to read partitions that are new, and forget those that are gone.';

create or replace function dibs.count_moving(target text, from_id uuid, to_id uuid) returns void
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
    perform dibs.tally('attempt_default', v_source.pages[n], v_source.pages[n + 1], v_source.horizons[n],
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

comment on function dibs.count_moving is
'Count those runs that are about to be moved from the default partition to a new day and were not counted yet.';

create or replace function dibs.read_tail(
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
  delete from dibs.stat_early as e where e.source = read_tail.source.name;
  select t.counted, t.early_page into read_tail.counted, v_early_page
  from dibs.tally(source.name, v_from, v_to, source.horizons[v_n], high, next,
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
  set pages = source.pages, horizons = source.horizons, inserted = case when more then -1 else read_tail.inserted end,
    read_at = read_tail.at
  where s.name = source.name;
end
$$;

comment on function dibs.read_tail is
'Count what is new in the open stretch of a partition, up to `budget` pages, and close it when it is long enough.';

create or replace function dibs.read_again(
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
    from dibs.tally(source.name, source.pages[v_n], source.pages[v_n + 1], source.horizons[v_n], high, next,
      source.read_at - interval '7 days', at, source.moved_by, early_too => false) as t;
    source.horizons[v_n] := high;
    budget := budget - (source.pages[v_n + 1] - source.pages[v_n]);
    v_n := v_n + 1;
  end loop;
  update dibs.stat_source as s
  set horizons = source.horizons,
    swept_inserted = case when source.swept > 0 then source.swept_inserted else read_again.inserted end, swept = case when v_n < cardinality(source.pages) then v_n else 0 end,
    sweep_at = read_again.at + case when v_n < cardinality(source.pages) then 20 * (clock_timestamp() - v_began)
      else greatest(interval '10 minutes', 20 * (clock_timestamp() - v_began)) end
  where s.name = source.name;
  return v_counted;
end
$$;

comment on function dibs.read_again is
'Read the closed stretches of a partition again, up to `budget` pages, for runs that were committed late or put into
freed space.';

create or replace function dibs.mean_of(us numeric, times numeric) returns interval
language sql immutable parallel safe
return case when times > 0 then (us / times)::double precision * interval '1 microsecond' end;

comment on function dibs.mean_of is 'A sum of microseconds divided by how many they are; null for none.';

create or replace function dibs.span_of(us bigint, times numeric) returns interval
language sql immutable parallel safe
return case when times > 0 then us * interval '1 microsecond' end;

comment on function dibs.span_of is 'Microseconds as an interval, null if there was nothing to measure.';
