-- find_jobs: find jobs by filter, newest first.

create or replace function dibs.find_jobs(
  filter jsonb default '{}', max integer default 50, before uuid default null,
  out ids uuid[], out looked bigint, out next uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_states constant text[] := '{scheduled,ready,blocked,running,succeeded,failed,exhausted,expired,cancelled}'::text[];
  v_filter dibs.job_filter := dibs._read_filter('find_jobs', filter, v_states);
begin
  perform dibs._check_count('find_jobs', max);
  select s.* into ids, looked, next from dibs._find_matching(v_filter, before, max, dibs.now(), true) as s;
end
$$;

comment on function dibs.find_jobs is
'Find jobs by filter, newest first: the ids of up to `max` jobs, how many jobs were read (`looked`), and where to go on:
give `next` as `before`, until it is null. A call reads at most 10,000 jobs, so it may return fewer than `max` and still
have a `next`. The view jobs describes them. Only callers who may call `show` may filter by payload or headers; for
others, only the first line of an error counts.';
