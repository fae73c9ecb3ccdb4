-- Parts of the verbs on many jobs. Each call of such a verb is one step, which ends soon.

create or replace function dibs._begin_step(
  verb text, filter jsonb, states text[], max integer, after uuid, continues bigint, at timestamptz,
  out ids uuid[], out next uuid)
language plpgsql volatile
as $$
declare
  v_filter dibs.job_filter := dibs._read_filter(verb, filter, states);
begin
  perform dibs._check_isolation(verb), dibs._check_count(verb, max), dibs._check_continues(verb, continues);
  select s.ids, s.next into ids, next from dibs._find_matching(v_filter, after, max, at, false) as s;
end
$$;

comment on function dibs._begin_step is
'Check the arguments of a verb on many jobs, and find the jobs of this step. `next` is where the next step begins, null
after the last.';

create or replace function dibs._delete_jobs(ids uuid[]) returns bigint
language plpgsql volatile
as $$
declare
  v_gone bigint;
begin
  delete from dibs.attempt as a where a.id = any (ids);
  delete from dibs.delivery as d where d.job_id = any (ids);
  delete from dibs.follow_up as f where f.id = any (ids);
  with gone as (
    delete from dibs.job as j where j.id = any (ids) returning 1)
  select count(*) into v_gone from gone;
  return v_gone;
end
$$;

comment on function dibs._delete_jobs is
'Delete jobs that have no ticket, with their attempts, deliveries and follow-ups. Return how many.';

create or replace function dibs._find_deletable(ids uuid[]) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_late uuid[];
begin
  for try in 1 .. 2 loop
    v_late := array(
      select distinct a.id from dibs.attempt as a cross join dibs.stat_mark as m
      where a.id = any (ids) and a.ended_at > m.since
        and (m.relation <> 'dibs.attempt'::regclass or a.xact >= m.next or a.xact = any (m.open)));
    exit when v_late = '{}' or try = 2;
    perform dibs.roll_up();
  end loop;
  return array(select k from unnest(ids) as k where k <> all (v_late) order by k);
end
$$;

comment on function dibs._find_deletable is
'Return the jobs whose attempts are all in the statistics, after one roll-up if some are not. An attempt that is deleted
before it is counted would be missing from the statistics.';
