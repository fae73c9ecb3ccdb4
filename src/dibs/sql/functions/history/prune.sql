-- prune: old days are dropped.

create or replace function dibs.prune(max integer default 1000)
returns table (name text, outcome text, trimmed bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := dibs.now();
  v_parent text;
  v_keep interval;
  v_busy boolean := false;
  v_chore dibs.chore;
  v_jobs record;
  v_attempts record;
begin
  perform dibs._check_isolation('prune');
  perform dibs._check_count('prune', prune.max);
  v_chore := dibs._lock_chore('prune');
  if v_chore.name is null then
    return query select t, 'locked', null::bigint from unnest(array['job', 'attempt']) as t;
    return;
  end if;
  -- A dropped day's lock lasts until the transaction ends, so nothing else is done in it; and rows of a day that is
  -- dropped need not be trimmed.
  for v_parent, v_keep in
    select 'attempt', max(q.history_retention) from dibs.queue as q
    union all select 'job', max(q.retention) from dibs.queue as q
  loop
    for name in
      select d.name from dibs._day_partitions(v_parent) as d where dibs._day_start(d.day + 1) <= v_now - v_keep
    loop
      trimmed := case when v_parent = 'job' then dibs._delete_dead_of_day(dibs._partition_day(name), v_now, 10 * prune.max) end;
      outcome := case when trimmed > 0 then 'trimmed' else dibs._drop_day(v_parent, name, v_now) end;
      trimmed := nullif(trimmed, 0);
      v_busy := v_busy or outcome <> 'crowded';
      return next;
      exit when outcome <> 'crowded';
    end loop;
  end loop;
  if v_busy then
    return;
  end if;
  v_jobs := dibs._trim_jobs(v_now, coalesce(v_chore.place, dibs._nil_id()), prune.max);
  v_attempts := dibs._trim_attempts(v_now, coalesce(v_chore.place, dibs._nil_id()), prune.max);
  -- The two walk side by side. Where they are is kept, so that no step looks at what the one before has seen.
  update dibs.chore as c set place = least(v_jobs.next, v_attempts.next)
  where c.name = 'prune' and c.done_at = v_chore.done_at and c.place is distinct from least(v_jobs.next, v_attempts.next);
  return query
  select t.name, case when t.trimmed > 0 then 'trimmed' else 'looked' end, t.trimmed
  from (values ('job', v_jobs.trimmed, v_jobs.next), ('attempt', v_attempts.trimmed, v_attempts.next)) as t (name, trimmed, next)
  where t.trimmed > 0 or t.next is not null;
end
$$;

comment on function dibs.prune is
'Worker protocol: drop a day of each table that is past every queue''s retention; when there is none, delete up to `max` rows past
retention that leave with no day. Each call is a short step: call it again while it answers anything. What still waits, runs, or is dead within its
retention stays. Answers for each day it came to: `dropped`, `locked` (in use; the next prune tries again) or `crowded`
(its rows are trimmed instead); how many rows were `trimmed`; and `looked` where it found none to trim and there are more to look at.';
