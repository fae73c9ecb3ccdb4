-- find_jobs: look for jobs by filter, newest first.

create or replace function dibs.find_jobs(
  filter jsonb default '{}', max integer default 50, before uuid default null, out ids uuid[], out looked bigint, out next uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_states constant text[] := '{scheduled,ready,blocked,running,succeeded,failed,exhausted,expired,cancelled}'::text[];
  v_filter dibs.job_filter := dibs._read_filter('find_jobs', filter, v_states);
begin
  perform dibs._check_count('find_jobs', max);
  if num_nonnulls(v_filter.payload, v_filter.headers) > 0
    and not dibs._may_show() then
    raise exception using errcode = '42501', message = format('role %I may not see payloads, nor look for jobs by them', session_user),
      hint = 'leave payload and headers out of the filter';
  end if;
  select s.* into ids, looked, next from dibs._find_matching(v_filter, before, max, dibs.now(), true) as s;
end
$$;

comment on function dibs.find_jobs is
'Look for jobs by filter, newest first: the ids of up to `max` of them, how many jobs were `looked` at, and where to go on: give `next` as
`before`; null if there are no more. A call looks at 10,000 jobs or so, so it may find fewer than there are and still have a `next`. The view jobs says what
they are. Only those who may `show` a job may look by payload or headers; for others the first line of an error counts.';
