-- Jobs that arrive while a queue or a group is full: refuse them, or sideline them (give them the lowest priority).

create or replace function dibs._refuse_full(
  what text, pressure dibs.pressure, new_jobs integer, max_depth bigint, max_age interval, at timestamptz, hint text)
returns void
language plpgsql stable
as $$
declare
  v_waiting constant bigint := (pressure).waiting;
  v_age interval;
  v_message text;
begin
  -- Which bound is exceeded? If both are, name the depth.
  if v_waiting + new_jobs > max_depth then
    -- Above the bound the count is not exact, so show the bound instead.
    v_message := format('%s is full: %s jobs wait, at most %s may, and this call brings %s more', what,
      least(v_waiting, max_depth), max_depth, new_jobs);
  else
    v_age := date_trunc('milliseconds', at - (pressure).oldest_due);
    v_message := format('%s is full: its oldest job has been due for %s, and at most %s is allowed', what, v_age,
      max_age);
  end if;
  raise exception using errcode = 'DI041', message = v_message, hint = _refuse_full.hint;
end
$$;

comment on function dibs._refuse_full is
'Raise DI041: a queue or group, named by `what`, has no room for the new jobs of a call.';

create or replace function dibs._is_full(
  pressure dibs.pressure, new_jobs integer, max_depth bigint, max_age interval, at timestamptz) returns boolean
language sql immutable parallel safe
return coalesce((pressure).waiting + new_jobs > max_depth, false)
  or coalesce(at - nullif((pressure).oldest_due, 'infinity') > max_age, false);

comment on function dibs._is_full is
'Return whether new jobs exceed a max_depth, or the oldest job that waits a max_age. A bound that is null is none.';

create or replace function dibs._check_depth(
  jobs jsonb, duplicate_of uuid[], is_follow_up boolean, at timestamptz, outcomes text[]) returns text[]
language plpgsql volatile
-- The pressure is remembered as text, and its date must be read back whatever DateStyle the session has.
set datestyle = 'ISO'
as $$
declare
  v_queue dibs.queue;
  v_names text[];  -- the queue and its shards, which share its bounds
  v_new_ords bigint[];  -- the positions of the new jobs
  v_new_jobs integer;
  v_replacements integer;
  v_pressure dibs.pressure;
  v_is_full boolean;
  v_ord bigint;
begin
  for v_queue in
    select q.* from dibs.queue as q
    where q.id in (
        select dibs._shown_queue(n.id) from dibs.queue as n
        where n.name in (select e ->> 'queue' from jsonb_array_elements(jobs) as e))
      and num_nonnulls(q.max_depth, q.max_age) > 0 order by q.id
  loop
    v_names := array(select q.name from dibs.queue as q where q.id = any (dibs._queue_numbers(v_queue.id)));
    -- Which jobs does the batch add to this queue? So far the only outcome is `replaced`.
    select coalesce(array_agg(e.ord) filter (where outcomes[e.ord] is null), '{}'),
      count(*) filter (where outcomes[e.ord] = 'replaced')
    into v_new_ords, v_replacements
    from jsonb_array_elements(jobs) with ordinality as e (job, ord)
    where e.job ->> 'queue' = any (v_names) and duplicate_of[e.ord] is null;
    v_new_jobs := cardinality(v_new_ords);
    continue when v_new_jobs = 0;
    -- Is there room for them?
    v_pressure := dibs._read_pressure(v_queue, v_replacements, at);
    v_is_full := dibs._is_full(v_pressure, v_new_jobs, v_queue.max_depth, v_queue.max_age, at);
    if v_is_full and v_queue.when_full = 'sideline' then
      foreach v_ord in array v_new_ords loop
        outcomes[v_ord] := 'sidelined';
      end loop;
    elsif v_is_full and not is_follow_up then
      perform dibs._refuse_full(format('queue %L', v_queue.name), v_pressure, v_new_jobs, v_queue.max_depth,
        v_queue.max_age, at,
        'nothing was enqueued; try again later, add workers, or raise the queue''s max_depth or max_age');
    else
      -- The jobs fit, or they are follow-ups, which are always accepted: they make the queue longer.
      v_pressure.waiting := v_pressure.waiting + v_new_jobs;
    end if;
    perform dibs._remember('pressure', v_queue.id,
      dibs._pressure_seal(v_queue.id, v_pressure::text) || v_pressure::text);
  end loop;
  return outcomes;
end
$$;

comment on function dibs._check_depth is
'Raise DI041 for a batch that does not fit into a full queue, or set the outcome of its jobs to `sidelined`. Duplicates
(`duplicate_of`) and replacements are not new jobs: they need no room. A batch that `is_follow_up` is never refused.
Return the outcomes.';

create or replace function dibs._measure_group_pressure(
  queue dibs.queue, group_key uuid, max_depth bigint, max_age interval, at timestamptz) returns dibs.pressure
language plpgsql volatile
as $$
declare
  v_lowest constant smallint := dibs._lowest_counted_priority(queue);
  v_ready bigint;
  v_blocked bigint;
  v_ready_since timestamptz;
  v_blocked_since timestamptz;
  v_pressure dibs.pressure;
begin
  if max_depth is not null then
    select count(*) into v_ready from (
      select from dibs.ready as r
      where r.queue_id = (queue).id and r.group_key = _measure_group_pressure.group_key and r.priority >= v_lowest
      limit max_depth) as r;
    select count(*) into v_blocked from (
      select from dibs.blocked as b
      where b.queue_id = (queue).id and b.group_key = _measure_group_pressure.group_key and b.priority >= v_lowest
      limit max_depth) as b;
    v_pressure.waiting := v_ready + v_blocked;
  end if;
  if max_age is not null then
    -- The index gives the oldest job of one priority, so ask it once for each.
    select min(oldest.due_at) into v_ready_since
    from unnest(dibs._priorities(queue)) as p (priority)
    cross join lateral (
      select r.due_at from dibs.ready as r
      where r.queue_id = (queue).id and r.group_key = _measure_group_pressure.group_key
        and r.priority = p.priority and r.due_at <= at
      order by r.due_at, r.id limit 1) as oldest
    where p.priority >= v_lowest;
    select min(b.due_at) into v_blocked_since from dibs.blocked as b
    where b.queue_id = (queue).id and b.group_key = _measure_group_pressure.group_key and b.priority >= v_lowest;
    v_pressure.oldest_due := least(v_ready_since, v_blocked_since);
  end if;
  return v_pressure;
end
$$;

comment on function dibs._measure_group_pressure is
'Count how many jobs of a group wait (ready ones and blocked ones, each up to `max_depth`), and find since when the
oldest is due: each only if it has a bound. Sidelined jobs do not count.';

create or replace function dibs._check_group_depths(
  jobs jsonb, duplicate_of uuid[], is_follow_up boolean, at timestamptz, outcomes text[]) returns text[]
language plpgsql volatile
as $$
declare
  v_group record;
  v_pressure dibs.pressure;
  v_new_jobs integer;
  v_ord bigint;
begin
  for v_group in
    select g.queue, g.name, g.group_key, g.new_ords, g.replacements, p.max_depth, p.max_age
    from (
      -- The groups of the batch, each with the positions of its new jobs.
      select q as queue, e.job ->> 'group' as name, dibs._group_key(q.id, e.job ->> 'group') as group_key,
        array_agg(e.ord) filter (where outcomes[e.ord] is null) as new_ords,
        count(*) filter (where outcomes[e.ord] = 'replaced') as replacements
      from jsonb_array_elements(jobs) with ordinality as e (job, ord) join dibs.queue as q on q.name = e.job ->> 'queue'
      where e.job ->> 'group' is not null and q.has_group_policy and duplicate_of[e.ord] is null
      group by q.id, e.job ->> 'group'
    ) as g
    cross join lateral (
      -- The group's own policy, otherwise that of all groups of the queue, which has the nil id and so sorts last.
      select p.max_depth, p.max_age from dibs.group_policy as p
      where p.queue_id = (g.queue).id and p.group_key in (g.group_key, dibs._nil_id())
      order by p.group_key desc limit 1) as p
    where g.new_ords is not null and num_nonnulls(p.max_depth, p.max_age) > 0
    order by (g.queue).id, g.name
  loop
    v_new_jobs := cardinality(v_group.new_ords);
    v_pressure := dibs._measure_group_pressure(
      v_group.queue, v_group.group_key, v_group.max_depth, v_group.max_age, at);
    -- The replaced jobs are cancelled by now, and the jobs in their places not inserted yet.
    v_pressure.waiting := v_pressure.waiting + v_group.replacements;
    continue when not dibs._is_full(v_pressure, v_new_jobs, v_group.max_depth, v_group.max_age, at);
    if (v_group.queue).when_full = 'sideline' then
      foreach v_ord in array v_group.new_ords loop
        outcomes[v_ord] := 'sidelined';
      end loop;
    elsif not is_follow_up then
      perform dibs._refuse_full(format('group %L of queue %L', v_group.name, (v_group.queue).name), v_pressure,
        v_new_jobs, v_group.max_depth, v_group.max_age, at,
        'nothing was enqueued; try again later, add workers, or change the group with dibs.set_group');
    end if;
  end loop;
  return outcomes;
end
$$;

comment on function dibs._check_group_depths is
'Do for the groups of a batch what `_check_depth` does for its queues; the arguments are the same. Nothing is
remembered: each call measures. Each shard counts the jobs of a group by itself.';
