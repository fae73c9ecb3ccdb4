-- Counting: group the new runs, sum the groups up by minute, hour and all time, and add the sums to stat.

-- The planner cannot know that few rows of attempt are new: without these settings it reads whole days, or their jobs.
create or replace function dibs._group_runs(mark dibs.stat_mark, upto bigint, still_open bigint[])
returns setof dibs.run_group
language plpgsql stable
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set jit = off
as $$
begin
  return query
  select t.queue_id, t.kind, date_trunc('minute', t.ended_at), t.outcome::text, dibs._bar_of(t.run_us),
    dibs._bar_of(t.wait_us), count(*), sum(t.run_us)::bigint, max(t.run_us), sum(t.wait_us)::bigint,
    max(t.wait_us), max(t.ended_at),
    (max(array[dibs._micros_between('epoch', t.ended_at), t.run_us]))[2]  -- the run_us of the run that ended last
  from (
    select a.queue_id, coalesce(j.kind, '') as kind, coalesce(a.outcome, 'succeeded') as outcome, a.ended_at,
      case when a.outcome is null or a.outcome = 'failed'
        then dibs._micros_between(a.claimed_at, a.ended_at) end as run_us,
      case when a.run = 1 then greatest(dibs._micros_between(j.due_at, a.claimed_at), 0) end as wait_us
    from dibs._uncounted_runs(mark, upto, still_open) as a
    left join lateral (select j.kind, j.due_at from dibs.job as j where j.id = a.id offset 0) as j on true
    offset 0
  ) as t
  group by t.queue_id, t.kind, t.outcome, 3, 5, 6;
end
$$;

comment on function dibs._group_runs is
'Group the uncounted runs of transactions below `upto`. A run counts for the durations if it succeeded or failed, and
its wait if it was the first run of its job.';

create or replace function dibs._has_more_runs(first bigint, upto bigint, max integer) returns boolean
language plpgsql stable
as $$
begin
  return exists (select from dibs.attempt as a where a.xact >= first and a.xact < upto offset max);
end
$$;

comment on function dibs._has_more_runs is
'True if the transactions from `first` to before `upto` ended more than `max` runs. Reads at most one more than that.';

create or replace function dibs._take_unrun_groups() returns setof dibs.run_group
language sql volatile
begin atomic
  with gone as (
    delete from dibs.stat_unrun returning *
  )
  select u.queue_id, u.kind, date_trunc('minute', u.at), u.state, null::integer, null::integer, sum(u.jobs)::bigint,
    null::bigint, null::bigint, null::bigint, null::bigint, max(u.at), null::bigint
  from gone as u group by 1, 2, 3, 4;
end;

comment on function dibs._take_unrun_groups is 'Delete the rows of stat_unrun, and return them as run groups.';

create or replace function dibs._sum_run_groups(groups dibs.run_group[], at timestamptz) returns setof dibs.stat
language sql stable
begin atomic
  select dibs._shown_queue(g.queue_id), g.kind, p.grain, p.at,
    coalesce(sum(g.times) filter (where g.state = 'succeeded'), 0)::bigint,
    coalesce(sum(g.times) filter (where g.state = 'failed'), 0)::bigint,
    coalesce(sum(g.times) filter (where g.state = 'lost'), 0)::bigint,
    coalesce(sum(g.times) filter (where g.state = 'snoozed'), 0)::bigint,
    coalesce(sum(g.times) filter (where g.state = 'released'), 0)::bigint,
    coalesce(sum(g.times) filter (where g.state = 'cancelled'), 0)::bigint,
    coalesce(sum(g.times) filter (where g.state = 'expired'), 0)::bigint,
    coalesce(sum(g.times) filter (where g.run_bar is not null), 0)::bigint,
    coalesce(sum(g.run_us), 0)::bigint, coalesce(max(g.run_max_us), 0),
    coalesce(sum(g.times) filter (where g.wait_bar is not null), 0)::bigint,
    coalesce(sum(g.wait_us), 0)::bigint, coalesce(max(g.wait_max_us), 0),
    max(g.ended_at) filter (where g.run_bar is not null),
    -- The last_us of the group that ended last.
    (max(array[dibs._micros_between('epoch', g.ended_at), g.last_us]) filter (where g.run_bar is not null))[2],
    dibs._histogram(array_agg(g.run_bar), array_agg(g.times)),
    dibs._histogram(array_agg(g.wait_bar), array_agg(g.times))
  from dibs.setting as o, unnest(groups) as g
  cross join lateral (values
    ('minute', g.minute, o.stat_minutes), ('hour', date_trunc('hour', g.minute, 'UTC'), o.stat_hours),
    ('ever', timestamptz 'epoch', null)) as p (grain, at, kept)
  where p.kept is null or p.at > _sum_run_groups.at - p.kept
  group by 1, 2, 3, 4;
end;

comment on function dibs._sum_run_groups is
'Sum up run groups for each minute, each hour and all time. Minutes and hours that are no longer kept are left out.';

create or replace function dibs._add_run_groups(groups dibs.run_group[], at timestamptz) returns bigint
language plpgsql volatile
as $$
begin
  insert into dibs.stat as s select n.* from dibs._sum_run_groups(groups, _add_run_groups.at) as n
  on conflict on constraint stat_pkey do update set
    succeeded = s.succeeded + excluded.succeeded, failed = s.failed + excluded.failed, lost = s.lost + excluded.lost,
    snoozed = s.snoozed + excluded.snoozed, released = s.released + excluded.released,
    cancelled = s.cancelled + excluded.cancelled, expired = s.expired + excluded.expired,
    runs = s.runs + excluded.runs, run_us = s.run_us + excluded.run_us,
    run_max_us = greatest(s.run_max_us, excluded.run_max_us), waits = s.waits + excluded.waits,
    wait_us = s.wait_us + excluded.wait_us, wait_max_us = greatest(s.wait_max_us, excluded.wait_max_us),
    last_at = greatest(s.last_at, excluded.last_at),
    last_us = case when s.last_at > excluded.last_at then s.last_us else coalesce(excluded.last_us, s.last_us) end,
    run_counts = dibs._add_histograms(s.run_counts, excluded.run_counts),
    wait_counts = dibs._add_histograms(s.wait_counts, excluded.wait_counts);
  return (select coalesce(sum(g.times), 0) from unnest(groups) as g);
end
$$;

comment on function dibs._add_run_groups is 'Add run groups to dibs.stat. Return how many runs and jobs they have.';

create or replace function dibs._record_unrun_jobs(ids uuid[], state text, at timestamptz) returns void
language sql volatile
begin atomic
  insert into dibs.stat_unrun (queue_id, kind, at, state, jobs)
  select j.queue_id, j.kind, _record_unrun_jobs.at, _record_unrun_jobs.state, count(*)
  from unnest(ids) as k (id)
  cross join lateral (select j.queue_id, j.kind from dibs.job as j where j.id = k.id offset 0) as j
  group by 1, 2;
end;

comment on function dibs._record_unrun_jobs is
'Record jobs that ended without a run in stat_unrun, for the next roll_up.';
