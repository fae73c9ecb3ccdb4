-- Everything that has to be done now and then, in one call, for those without a running dibs.

create or replace function dibs.maintain() returns table (step text, count bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_expired bigint := 0;
  v_chunk record;
  v_next uuid := '00000000-0000-0000-0000-000000000000'::uuid;
begin
  perform dibs._check_isolation('maintain');
  if not pg_try_advisory_xact_lock(20003, 0) then
    return;
  end if;
  return query select 'rescued', count(*) from dibs.rescue(10000);
  while v_next is not null loop
    select * into v_chunk from dibs.expire(10000, v_next);
    v_expired := v_expired + v_chunk.expired;
    v_next := v_chunk.next;
  end loop;
  return query select 'expired', v_expired;
  return query select 'schedules fired', r.fired from dibs.run_schedules(10000) as r;
  return query select 'runs counted', r.counted from dibs.roll_up() as r;
  if exists (select from dibs.queue as q where q.has_groups) then
    return query select 'groups mended', dibs.repair_groups();
  end if;
  if exists (select from dibs.limit_rule) then
    return query select 'limits mended', dibs.repair_limits();
  end if;
  return query select 'hints, workers and keys forgotten', dibs.forget();
  return query select 'days made', count(*) from dibs.make_days() as d where d.outcome = 'made';
  return query select 'days dropped', count(*) from dibs.prune(10000) as p where p.outcome = 'dropped';
end
$$;

comment on function dibs.maintain is
'One round of all the upkeep: rescue, expire, run_schedules, roll_up, repair_groups, repair_limits, forget, make_days, prune. For a cron job or pg_cron where no `dibs
maintain` runs; call it every few seconds. Returns what it did; nothing when another round is running.';

create or replace function dibs.forget() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_hints bigint;
  v_workers bigint;
begin
  with gone as (
    delete from dibs.floor_hint as h
    where h.swept_at < (select max(n.swept_at) from dibs.floor_hint as n where n.what = h.what and n.queue_id = h.queue_id)
      and h.swept_at < clock_timestamp() - interval '1 minute'
    returning 1)
  select count(*) into v_hints from gone;
  with gone as (
    delete from dibs.worker as w where w.seen_at < dibs.now() - interval '7 days' returning 1)
  select count(*) into v_workers from gone;
  perform dibs._forget_runs();
  return v_hints + v_workers + dibs._forget_fingerprints() + dibs._forget_channels();
end
$$;

comment on function dibs.forget is
'Delete old hints of where to scan, workers not seen for 7 days, dedup keys whose time is over, errors past their
retention, the deliveries of jobs that are gone, and processes nobody looks at any more. Returns how many rows went.';
