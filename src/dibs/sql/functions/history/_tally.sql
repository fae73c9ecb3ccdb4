-- Runs are counted.

create or replace function dibs._tally(
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
      dibs._bar_of(f.run_us) as run_bar, dibs._bar_of(f.wait_us) as wait_bar, count(*) as n, sum(f.run_us) as run_us,
      max(f.run_us) as run_max_us, sum(f.wait_us) as wait_us, max(f.wait_us) as wait_max_us, max(f.ended_at) as ended_at,
      max(array[(date_part('epoch', f.ended_at) * 1000000)::bigint, f.run_us]) as last, min(f.page) as page
    from dibs._fresh_attempts(source, from_page, to_page, low, high, next, since, moved_by, from_id, to_id) as f
    group by 1, 2, 3, 4, 5, 6, 7
  ), sums as materialized (
    select f.settled, dibs._shown_queue(f.queue_id) as queue_id, f.kind, g.grain, g.at,
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
      dibs._bars(array_agg(f.run_bar) filter (where f.run_bar is not null),
        array_agg(f.n::numeric) filter (where f.run_bar is not null)) as run_counts,
      dibs._bars(array_agg(f.wait_bar) filter (where f.wait_bar is not null),
        array_agg(f.n::numeric) filter (where f.wait_bar is not null)) as wait_counts
    from fresh as f
    cross join lateral (values
      ('minute', f.minute), ('hour', date_trunc('hour', f.minute, 'UTC')), ('ever', timestamptz 'epoch')) as g (grain, at)
    where case g.grain when 'minute' then not f.settled or g.at > _tally.at - v_setting.stat_minutes
      when 'hour' then f.settled and g.at > _tally.at - v_setting.stat_hours else f.settled end
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
      run_counts = dibs._add_bars(s.run_counts, excluded.run_counts),
      wait_counts = dibs._add_bars(s.wait_counts, excluded.wait_counts)
  ), awaited as (
    insert into dibs.stat_early (source, queue_id, kind, grain, at, succeeded, failed, lost, snoozed, released, cancelled,
      runs, run_us, run_max_us, waits, wait_us, wait_max_us, last_at, last_us, run_counts, wait_counts)
    select _tally.source, n.queue_id, n.kind, n.grain, n.at, n.succeeded, n.failed, n.lost, n.snoozed, n.released,
      n.cancelled, n.runs, n.run_us, n.run_max_us, n.waits, n.wait_us, n.wait_max_us, n.last_at, n.last_us,
      n.run_counts, n.wait_counts
    from sums as n where not n.settled and early_too
  )
  select coalesce(sum(f.n) filter (where f.settled), 0), min(f.page) into _tally.counted, _tally.early_page from fresh as f;
end
$$;

comment on function dibs._tally is
'Count the runs in a stretch of pages whose transactions are `low` or newer: those older than `high` for good, the rest
until the next round. Says how many were for good, and the first page with one that was not.';

create or replace function dibs._count_unrun(at timestamptz) returns bigint
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
    select dibs._shown_queue(u.queue_id), u.kind, g.grain, g.at, coalesce(sum(u.jobs) filter (where u.state = 'expired'), 0),
      coalesce(sum(u.jobs) filter (where u.state = 'cancelled'), 0)
    from gone as u
    cross join lateral (values
      ('minute', date_trunc('minute', u.at)), ('hour', date_trunc('hour', u.at, 'UTC')),
      ('ever', timestamptz 'epoch')) as g (grain, at)
    where case g.grain when 'minute' then g.at > _count_unrun.at - v_setting.stat_minutes
      when 'hour' then g.at > _count_unrun.at - v_setting.stat_hours else true end
    group by 1, 2, 3, 4
    on conflict (queue_id, kind, grain, at) do update set
      expired = s.expired + excluded.expired, cancelled = s.cancelled + excluded.cancelled
  )
  select coalesce(sum(g.jobs), 0) into v_jobs from gone as g;
  return v_jobs;
end
$$;

comment on function dibs._count_unrun is 'Count the jobs that ended without a run. Returns how many there were.';

create or replace function dibs._note_unrun(ids uuid[], state text, at timestamptz) returns void
language sql volatile
begin atomic
  insert into dibs.stat_unrun (queue_id, kind, at, state, jobs)
  select j.queue_id, j.kind, _note_unrun.at, _note_unrun.state, count(*)
  from unnest(ids) as k (id)
  cross join lateral (select j.queue_id, j.kind from dibs.job as j where j.id = k.id offset 0) as j
  group by 1, 2;
end;

comment on function dibs._note_unrun is 'Note jobs that ended without a run, for the next roll_up.';
