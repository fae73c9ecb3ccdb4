-- Jobs without a ticket, and tickets of queues and limits that are gone.

create or replace function dibs._find_lost_jobs() returns setof dibs.finding
language plpgsql volatile
as $$
declare
  c_max_jobs constant integer := 2000;
  v_oldest_at constant timestamptz := coalesce(
    (select dibs.id_time(j.id) from dibs.job as j order by j.id limit 1), dibs.now());
  v_newest_from constant uuid := coalesce(
    (select j.id from dibs.job as j order by j.id desc offset c_max_jobs limit 1), dibs._nil_id());
  v_random_from constant uuid := dibs._id_floor(dibs.now() - random() * (dibs.now() - v_oldest_at));
  v_ids uuid[];
begin
  -- Look at the newest jobs, and at as many from a random time on: over many calls that covers the whole history.
  v_ids := (dibs._next_lost_jobs(v_newest_from, c_max_jobs)).ids
    || (dibs._next_lost_jobs(v_random_from, c_max_jobs)).ids;
  return query
  select 'lost-job', 'error',
    format('%s of at most %s jobs that were looked at have no ticket, and no run of theirs succeeded, such as job %s',
      count(distinct k), 2 * c_max_jobs, min(k::text)),
    'They read as succeeded, and will never run. That is a defect of dibs, or somebody changed its tables.',
    'select * from dibs.repair_jobs(); go on with its next as after, until that is null', 'jobs'
  from unnest(v_ids) as k having count(*) > 0;
end
$$;

comment on function dibs._find_lost_jobs is
'Find jobs without a ticket of which no run succeeded, among at most 4,000. They read as succeeded.';

create or replace function dibs._find_gone_queues() returns setof dibs.finding
language sql stable
begin atomic
  select 'gone-queue', 'error', format('jobs wait, run or are dead in queue number %s, which is gone', g),
    'Nobody can claim or find them.',
    'select * from dibs.repair_jobs(); then move them out of the queue it makes, or resume it',
    'queue number ' || g
  from unnest(dibs._find_missing_queues()) as g;
end;

comment on function dibs._find_gone_queues is 'Find tickets and group pointers of queues that are gone.';

create or replace function dibs._find_gone_limits() returns setof dibs.finding
language sql stable
begin atomic
  select 'gone-limit', 'error', format('jobs wait for limit number %s, which is gone', b.limit_id),
    'No claim unblocks them.', 'select dibs.repair_limits();', 'limit number ' || b.limit_id
  from (
    select distinct b.limit_id
    from (select x.limit_id from dibs.blocked as x where x.kind is null limit 2 * dibs._count_bound()) as b) as b
  where not exists (select from dibs.limit_rule as r where r.id = b.limit_id)
  order by b.limit_id;
end;

comment on function dibs._find_gone_limits is 'Find jobs that wait for a limit that is gone, among 20,000.';
