-- roll_up: from attempt to stat, by one process at a time, each run once.

create or replace function dibs.roll_up(max integer default 20000, out counted bigint, out more boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_today text[] := array['attempt_default', dibs._day_name('attempt', (v_now at time zone 'UTC')::date),
    dibs._day_name('attempt', (v_now at time zone 'UTC')::date - 1)];
  v_high bigint;
  v_next bigint;
  v_left bigint := roll_up.max;
  v_part record;
  v_source dibs.stat_source;
  v_done record;
begin
  perform dibs._check_isolation('roll_up');
  perform dibs._check_count('roll_up', roll_up.max);
  roll_up.counted := 0;
  roll_up.more := false;
  if not pg_try_advisory_xact_lock(20003, 3) then
    return;
  end if;
  -- Read before the rows are: whatever is older than v_high has ended, and the statements that follow see it. That holds
  -- for subtransactions, too, which no snapshot lists: their numbers are above those of the transactions they belong to.
  select pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint into v_high, v_next
  from pg_current_snapshot() as s;
  perform dibs._sync_sources(v_now, v_high);
  for v_part in select * from dibs._rows_of('attempt') loop
    select * into v_source from dibs.stat_source as s where s.name = v_part.name;
    if v_left > 0 and (v_source.inserted < 0 or v_part.name = any (v_today) or v_part.inserted <> v_source.inserted
        or v_source.read_at not between v_now - interval '10 minutes' and v_now
        or exists (select from dibs.stat_early as e where e.source = v_part.name)) then
      select * into v_done from dibs._read_tail(v_source, v_part.pages, v_part.inserted, v_high, v_next, v_now, v_left);
      roll_up.counted := roll_up.counted + v_done.counted;
      roll_up.more := roll_up.more or v_done.more;
      v_left := v_left - greatest(v_part.pages - v_source.pages[cardinality(v_source.pages)], 1);
    end if;
    if v_left > 0 and cardinality(v_source.pages) > 1
      and (v_source.swept > 0 or v_part.inserted <> v_source.swept_inserted)
      and v_source.sweep_at not between v_now and v_now + interval '1 day' then
      select * into v_source from dibs.stat_source as s where s.name = v_part.name;
      roll_up.counted := roll_up.counted + dibs._read_again(v_source, v_part.inserted, v_high, v_next, v_now, least(v_left, 4096));
      v_left := v_left - 4096;
    end if;
  end loop;
  roll_up.more := roll_up.more or v_left <= 0;
  roll_up.counted := roll_up.counted + dibs._count_unrun(v_now);
  delete from dibs.stat as s using dibs.setting as o
  where s.grain = 'minute' and s.at <= v_now - o.stat_minutes or s.grain = 'hour' and s.at <= v_now - o.stat_hours;
end
$$;

comment on function dibs.roll_up is
'Count what has ended since the last time into the statistics, reading up to `max` pages of the history. Says how many
runs and jobs it counted, and whether there is more to read. One does so at a time; for the others there is nothing to do.';

create or replace function dibs.set_stat_retention(minutes interval default null, hours interval default null) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  update dibs.setting as s
  set stat_minutes = coalesce(set_stat_retention.minutes, s.stat_minutes),
    stat_hours = coalesce(set_stat_retention.hours, s.stat_hours);
end;

comment on function dibs.set_stat_retention is
'How long statistics are kept minute by minute (2 hours to 1 year) and hour by hour (8 days to 10 years). Null leaves one
as it is. Totals are kept forever.';
