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
begin
  perform dibs._check_isolation('prune');
  perform dibs._check_count('prune', prune.max);
  if (dibs._take_chore('prune')).name is null then
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
      select d.name from dibs._days(v_parent) as d where dibs._day_start(d.day + 1) <= v_now - v_keep
    loop
      outcome := dibs._drop_day(v_parent, name, v_now);
      v_busy := v_busy or outcome <> 'crowded';
      return next;
      exit when outcome <> 'crowded';
    end loop;
  end loop;
  if not v_busy then
    return query
    select t.name, 'trimmed', t.trimmed
    from (values ('job', dibs._trim_jobs(v_now, prune.max)), ('attempt', dibs._trim_attempts(v_now, prune.max)))
      as t (name, trimmed)
    where t.trimmed > 0;
  end if;
end
$$;

comment on function dibs.prune is
'Drop a day of each table that is past every queue''s retention; when there is none, delete up to `max` rows past
retention that leave with no day. Call it again while it drops or trims. What still waits, runs, or is dead within its
retention stays. Answers for each day it came to: `dropped`, `locked` (in use; the next prune tries again) or `crowded`
(its rows are trimmed instead); and how many rows were `trimmed`.';
