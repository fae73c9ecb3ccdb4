-- Parts of the verbs on many jobs. Each call of such a verb is one step.

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

create or replace function dibs._lock_dead(ids uuid[], filter dibs.job_filter)
returns table (id uuid, still_matches boolean)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_queues integer[] := case when filter.queue is not null
    then dibs._queue_numbers(dibs._queue_number(filter.queue)) end;
begin
  return query
  select d.id, d.still_matches from unnest(ids) as k (id)
  cross join lateral (
    select d.id, d.state = any (filter.states) and (v_queues is null or d.queue_id = any (v_queues)) as still_matches
    from dibs.dead as d where d.id = k.id for update skip locked) as d;
end
$$;

comment on function dibs._lock_dead is
'Lock the dead tickets of these jobs, in this order, and skip locked ones. `still_matches` is false for a job that no
longer is in a queue and a state of the filter: it was moved, or was retried and died again, since it was found.';

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

create or replace function dibs._uncounted_jobs(ids uuid[]) returns uuid[]
language plpgsql stable
as $$
begin
  return array(
    select distinct a.id from dibs.attempt as a cross join dibs.stat_mark as m
    where a.id = any (ids)
      and a.ended_at > m.restored_until  -- Earlier attempts were counted before a restore.
      and (
        -- Transactions that began after the last roll-up, or were open then, are not counted.
        a.xact >= m.next or a.xact = any (m.open)
        -- Since a restore that the next roll-up will notice, xact has numbers of another server.
        or m.relation <> 'dibs.attempt'::regclass));
end
$$;

comment on function dibs._uncounted_jobs is
'Return those of the jobs that may have attempts which are not in the statistics yet. The one row of stat_mark says
which transactions the last roll-up counted.';

create or replace function dibs._find_deletable(ids uuid[]) returns uuid[]
language plpgsql volatile
as $$
declare
  v_uncounted uuid[] := dibs._uncounted_jobs(ids);
begin
  if v_uncounted <> '{}' then
    perform dibs.roll_up();
    v_uncounted := dibs._uncounted_jobs(ids);
  end if;
  return array(select k from unnest(ids) as k where k <> all (v_uncounted) order by k);
end
$$;

comment on function dibs._find_deletable is
'Return those of the jobs whose attempts are all in the statistics, sorted. Call `roll_up` once if some are not. To
delete an attempt before it is counted would lose it for the statistics.';
