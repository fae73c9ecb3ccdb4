-- roll_up: count the runs of attempt into stat, each run once, by one process at a time.

create or replace function dibs.roll_up(max integer default 100000, out counted bigint, out more boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- A long history takes several steps, so that none needs much memory.
  c_steps constant integer := 50;
  c_transactions constant bigint := 20000;  -- in a step
  v_transactions bigint;
  v_now timestamptz := dibs.now();
  v_next bigint;
  v_still_open bigint[];
  v_mark dibs.stat_mark;
  v_upto bigint;
  v_groups dibs.run_group[];
begin
  perform dibs._check_isolation('roll_up');
  perform dibs._check_count('roll_up', roll_up.max);
  counted := 0;
  more := false;
  if (dibs._lock_chore('roll_up')).name is null then
    counted := null;
    return;
  end if;
  -- Read the open transactions before the runs: all others below v_next have ended, so later statements see their runs.
  select t.next, t.open into v_next, v_still_open from dibs._open_transactions() as t;
  v_mark := dibs._read_mark(v_next, v_still_open);
  for step in 1 .. c_steps loop
    v_transactions := least(c_transactions, roll_up.max);
    -- A transaction may have ended any number of runs. Take fewer transactions if they ended more than `max`.
    while v_transactions > 1
      and dibs._has_more_runs(v_mark.next, least(v_mark.next + v_transactions, v_next), roll_up.max) loop
      v_transactions := greatest(v_transactions / 8, 1);
    end loop;
    v_upto := least(v_mark.next + v_transactions, v_next);
    v_groups := array(select g from dibs._group_runs(v_mark, v_upto, v_still_open) as g);
    counted := counted + dibs._add_run_groups(v_groups, v_now);
    if exists (select from unnest(v_groups) as g where g.state in ('failed', 'lost')) then
      perform dibs._count_failures(v_mark, v_upto, v_still_open);
    end if;
    v_mark.ended_at := greatest(v_mark.ended_at, (select max(g.ended_at) from unnest(v_groups) as g));
    v_mark.next := v_upto;
    v_mark.open := array(select o from unnest(v_still_open) as o where o < v_upto);
    exit when v_upto = v_next or counted >= roll_up.max;
  end loop;
  more := v_mark.next < v_next;
  update dibs.stat_mark
  set (relation, next, open, ended_at, restored_until)
    = (v_mark.relation, v_mark.next, v_mark.open, v_mark.ended_at, v_mark.restored_until);
  counted := counted + dibs._add_run_groups(array(select g from dibs._take_unrun_groups() as g), v_now);
  delete from dibs.stat as s using dibs.setting as o
  where s.grain = 'minute' and s.at <= v_now - o.stat_minutes or s.grain = 'hour' and s.at <= v_now - o.stat_hours;
end
$$;

comment on function dibs.roll_up is
'Worker protocol: add the runs that ended since the last call, and the jobs that ended without one, to the statistics,
and count failures by their group. Stops after about `max` runs; those of one transaction are counted together. Returns
how many it counted, and whether there are more. One caller does so at a time; for others `counted` is null.';

create or replace function dibs.set_stat_retention(minutes interval default null, hours interval default null)
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  update dibs.setting as s
  set stat_minutes = coalesce(set_stat_retention.minutes, s.stat_minutes),
    stat_hours = coalesce(set_stat_retention.hours, s.stat_hours);
  select dibs._audit('set_stat_retention',
    detail => jsonb_build_object('minutes', set_stat_retention.minutes, 'hours', set_stat_retention.hours));
end;

comment on function dibs.set_stat_retention is
'Set how long statistics are kept minute by minute (2 hours to 1 year) and hour by hour (8 days to 10 years). Null
leaves that one as it is. Totals are kept forever.';
