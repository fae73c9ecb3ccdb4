-- delete: delete ended jobs at once, instead of after their retention.

create or replace function dibs.delete(
  filter jsonb, max integer default 1000, after uuid default null, continues bigint default null,
  dry_run boolean default false,
  out matched bigint, out done bigint, out next uuid, out operation bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_states constant text[] := '{succeeded,failed,exhausted,expired,cancelled}'::text[];
  v_filter dibs.job_filter;
  v_found uuid[];
  v_deletable uuid[];
  v_dead uuid[];
  v_ended uuid[];
  v_uncounted uuid[];
  v_counted uuid[];
begin
  select s.ids, s.next into v_found, delete.next
  from dibs._begin_step('delete', delete.filter, v_states, delete.max, delete.after, delete.continues, dibs.now()) as s;
  matched := cardinality(v_found);
  done := 0;
  if delete.dry_run or matched = 0 then
    operation := delete.continues;
    return;
  end if;
  v_filter := dibs._read_filter('delete', delete.filter, v_states);
  v_deletable := dibs._find_deletable(v_found);
  -- Skip a locked dead ticket: the job may be about to be retried.
  v_dead := array(select d.id from dibs._lock_dead(v_deletable, v_filter) as d where d.still_matches);
  v_ended := array(
    select k from unnest(v_deletable) as k
    where k = any (v_dead)
      or ('succeeded' = any (v_filter.states)
        and not exists (select from dibs.ready as r where r.id = k)
        and not exists (select from dibs.blocked as b where b.id = k)
        and not exists (select from dibs.lease as l where l.id = k)
        and not exists (select from dibs.dead as d where d.id = k)));
  -- These can run no more, but some may have run since _find_deletable.
  v_uncounted := dibs._uncounted_jobs(v_ended);
  v_counted := array(select k from unnest(v_ended) as k where k <> all (v_uncounted) order by k);
  delete from dibs.dead as d where d.id = any (v_counted);
  done := dibs._delete_jobs(v_counted);
  operation := dibs._audit('delete', delete.filter ->> 'queue', delete.filter, done, continues => delete.continues);
end
$$;

comment on function dibs.delete is
'Delete jobs that have succeeded or are dead, with their attempts: a step of up to `max`, by filter (see the type
job_filter), oldest first. `matched` is how many the step found and `done` how many it deleted, fewer if other
transactions have locked some or they are not in the statistics yet. For the next step give `next` as `after` and
`operation` as `continues`, until `next` is null. A dry run only counts.';
