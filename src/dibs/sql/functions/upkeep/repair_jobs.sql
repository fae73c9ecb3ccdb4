-- repair_jobs: restore jobs and queues that the doctor found lost.

create or replace function dibs.repair_jobs(
  max integer default 10000, after uuid default null, dry_run boolean default false,
  out lost bigint, out restored bigint, out queues text[], out next uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  v_missing constant integer[] := dibs._find_missing_queues();
  v_ids uuid[];
begin
  perform dibs._check_isolation('repair_jobs'), dibs._refuse_confined('repair_jobs looks at all'),
    dibs._check_count('repair_jobs', repair_jobs.max);
  restored := 0;
  -- The first free of the names recovered-7, recovered-7-2, recovered-7-3 …
  queues := array(
    select (
      select c.name
      from generate_series(1, 1000) as i cross join lateral concat_ws('-', 'recovered', m.id, nullif(i, 1)) as c (name)
      where not exists (select from dibs.queue as q where q.name = c.name) order by i limit 1)
    from unnest(v_missing) with ordinality as m (id, n) order by m.n);
  select l.ids, l.next into v_ids, repair_jobs.next
  from dibs._next_lost_jobs(coalesce(repair_jobs.after, dibs._nil_id()), repair_jobs.max) as l;
  lost := coalesce(cardinality(v_ids), 0);
  if repair_jobs.dry_run then
    return;
  end if;
  -- Set every switch: nothing says what the jobs of a lost queue need.
  insert into dibs.queue (id, name, paused_at, has_groups, has_job_limits, has_large) overriding system value
  select m.id, m.name, v_now, true, true, true from unnest(v_missing, queues) as m (id, name)
  on conflict do nothing;
  perform dibs._note_priorities(array_agg(r.queue_id), array_agg(r.priority)) from (
    select distinct r.queue_id, r.priority from dibs.queue as q join dibs.ready as r on r.queue_id = q.id
    where q.name = any (queues) and r.priority <> q.priority) as r having count(*) > 0;
  restored := case when lost > 0 then dibs._restore_jobs(v_ids, v_now) else 0 end;
  perform dibs._audit('repair_jobs', jobs => restored, detail => jsonb_build_object('queues', queues))
  where restored > 0 or queues <> '{}';
end
$$;

comment on function dibs.repair_jobs is
'Repair the findings `lost-job` and `gone-queue` of the doctor: a step of up to `max` jobs after an id. Jobs that have
no ticket although no run of theirs succeeded become ready again: `lost` were found, `restored` were repaired. Queues
that are gone although tickets name them are created again, paused, under the names in `queues`: move their jobs
elsewhere, or resume them. Go on with `next` as `after` until it is null. A dry run changes nothing. In a sound database
it finds nothing.';
