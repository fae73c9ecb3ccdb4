-- prune: drop days past every retention, and delete single rows past theirs.

create or replace function dibs.prune(max integer default 1000)
returns table (name text, outcome text, trimmed bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  v_parent text;
  v_keep interval;
  v_has_dropped boolean := false;
  v_chore dibs.chore;
  v_jobs record;
  v_attempts record;
  v_place uuid;
begin
  perform dibs._check_isolation('prune');
  perform dibs._check_count('prune', prune.max);
  v_chore := dibs._lock_chore('prune');
  if v_chore.name is null then
    return query select t, 'locked', null::bigint from unnest(array['job', 'attempt']) as t;
    return;
  end if;
  -- To drop a day locks its whole table until the transaction ends. So no rows are deleted in a call that drops days.
  for v_parent, v_keep in
    select 'job', max(q.retention) from dibs.queue as q
    union all select 'attempt', max(q.history_retention) from dibs.queue as q
  loop
    for name in
      select d.name from dibs._day_partitions(v_parent) as d where dibs._day_start(d.day + 1) <= v_now - v_keep
    loop
      trimmed := case when v_parent = 'job'
        then dibs._delete_dead_of_day(dibs._partition_day(name), v_now, 10 * prune.max) end;
      outcome := case when trimmed > 0 then 'trimmed' else dibs._drop_day(v_parent, name, v_now) end;
      trimmed := nullif(trimmed, 0);
      return next;
      if outcome = 'trimmed' then
        return;
      end if;
      v_has_dropped := v_has_dropped or outcome = 'dropped';
      exit when outcome <> 'crowded';
    end loop;
  end loop;
  if v_has_dropped then
    return;
  end if;
  v_jobs := dibs._trim_jobs(v_now, coalesce(v_chore.place, dibs._nil_id()), prune.max);
  v_attempts := dibs._trim_attempts(v_now, coalesce(v_chore.place, dibs._nil_id()), prune.max);
  -- The next call goes on from the lower of the two places, so in one of the tables it reads some rows again.
  v_place := least(v_jobs.next, v_attempts.next);
  -- done_at is part of the key: it spares the update the dead versions of the row.
  update dibs.chore as c set place = v_place
  where c.name = 'prune' and c.done_at = v_chore.done_at and c.place is distinct from v_place;
  return query
  select t.name, case when t.trimmed > 0 then 'trimmed' else 'looked' end, t.trimmed
  from (values ('job', v_jobs.trimmed, v_jobs.next), ('attempt', v_attempts.trimmed, v_attempts.next))
    as t (name, trimmed, next)
  where t.trimmed > 0 or t.next is not null;
end
$$;

comment on function dibs.prune is
'Worker protocol: drop a day of `job` and one of `attempt` that are past the retention of every queue; if none was
dropped, delete up to `max` rows that are past their retention in days that stay. Each call is a short step: call it
again while it returns rows other than `locked` and `crowded`. Jobs that wait, run, or are dead within their retention
are kept. `outcome` is `dropped`, `locked` (in use; the next call tries again), `crowded` (the day stays, and its rows
are deleted one by one), `trimmed` (`trimmed` rows were deleted), or `looked` (nothing to delete among the rows read,
but there are more to read).';
