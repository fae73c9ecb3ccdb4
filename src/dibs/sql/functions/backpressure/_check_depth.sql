-- Jobs that arrive while a queue or a group is full: refuse them, or sideline them (give them the lowest priority).

create or replace function dibs._refuse_full(queue dibs.queue, pressure dibs.pressure, more bigint, at timestamptz)
returns void
language plpgsql stable
as $$
begin
  raise exception using errcode = 'DI041',
    message = case when (pressure).waiting + more > (queue).max_depth then format(
      'queue %L is full: %s jobs wait, at most %s may, and this call brings %s more',
      (queue).name, least((pressure).waiting, (queue).max_depth), (queue).max_depth, more)
    else format('queue %L is full: its oldest job has been due for %s, and at most %s is allowed',
      (queue).name, date_trunc('milliseconds', at - (pressure).oldest_due), (queue).max_age) end,
    hint = 'nothing was enqueued; try again later, add workers, or raise the queue''s max_depth or max_age';
end
$$;

comment on function dibs._refuse_full is
'Raise DI041: `more` jobs do not fit into the queue, or its oldest job is due for longer than it allows.';

create or replace function dibs._check_depth(
  jobs jsonb, same uuid[], awaited boolean, at timestamptz, inout outcomes text[], out aside integer[])
language plpgsql volatile
as $$
declare
  v_queue dibs.queue;
  v_names text[];
  v_ords bigint[];
  v_ord bigint;
  v_pressure dibs.pressure;
begin
  for v_queue in
    select q.* from dibs.queue as q
    where q.id in (
        select dibs._shown_queue(n.id) from dibs.queue as n
        where n.name in (select e ->> 'queue' from jsonb_array_elements(jobs) as e))
      and num_nonnulls(q.max_depth, q.max_age) > 0 order by q.id
  loop
    -- The bound is for the queue together with its shards.
    v_names := array(select q.name from dibs.queue as q where q.id = any (dibs._queue_numbers(v_queue.id)));
    -- Duplicates (same) and replacements (which have an outcome by now) do not make the queue longer.
    v_ords := array(
      select e.ord from jsonb_array_elements(jobs) with ordinality as e (job, ord)
      where e.job ->> 'queue' = any (v_names) and same[e.ord] is null and outcomes[e.ord] is null);
    continue when v_ords = '{}';
    v_pressure := dibs._read_pressure(v_queue, at);
    if v_pressure.waiting + cardinality(v_ords) > v_queue.max_depth or at - v_pressure.oldest_due > v_queue.max_age then
      if v_queue.when_full = 'sideline' then
        aside := aside || dibs._queue_numbers(v_queue.id);
        foreach v_ord in array v_ords loop
          outcomes[v_ord] := 'sidelined';
        end loop;
      elsif not awaited then
        perform dibs._refuse_full(v_queue, v_pressure, cardinality(v_ords), at);
      end if;
    else
      v_pressure.waiting := v_pressure.waiting + cardinality(v_ords);
    end if;
    perform dibs._remember_pressure(v_queue.id, v_pressure);
  end loop;
end
$$;

comment on function dibs._check_depth is
'Refuse a batch for a full queue, or sideline it. same[i]: the job of which job i is a duplicate, else null.
outcomes[i]: the answer for job i, if it is known by now; a sidelined job gets one here. aside: the queues that
sideline. `awaited`: the batch is a follow-up of a completion and is not refused.';

create or replace function dibs._check_group_depths(
  jobs jsonb, same uuid[], awaited boolean, at timestamptz, outcomes text[]) returns text[]
language plpgsql volatile
as $$
declare
  v_group record;
  v_waiting bigint;
  v_oldest timestamptz;
  v_lowest smallint;
  v_ord bigint;
begin
  for v_group in
    select g.queue_id, g.queue, g.when_full, g.name, g.group_key, p.max_depth, p.max_age, g.ords
    from (
      select q.id as queue_id, q.name as queue, q.when_full, e.job ->> 'group' as name,
        dibs._group_key(q.id, e.job ->> 'group') as group_key, array_agg(e.ord) as ords
      from jsonb_array_elements(jobs) with ordinality as e (job, ord) join dibs.queue as q on q.name = e.job ->> 'queue'
      where e.job ->> 'group' is not null and q.has_group_policy and same[e.ord] is null and outcomes[e.ord] is null
      group by 1, 2, 3, 4, 5
    ) as g
    cross join lateral (
      select p.max_depth, p.max_age from dibs.group_policy as p
      where p.queue_id = g.queue_id and p.group_key in (g.group_key, dibs._nil_id())
      order by p.group_key desc limit 1) as p
    where num_nonnulls(p.max_depth, p.max_age) > 0 order by g.queue_id, g.name
  loop
    -- Leave out sidelined jobs, which have the lowest priority.
    v_lowest := dibs._sidelined_priority() + (v_group.when_full = 'sideline')::integer;
    v_waiting := (select count(*) from (
      select from dibs.ready as r
      where r.queue_id = v_group.queue_id and r.group_key = v_group.group_key and r.priority >= v_lowest
      limit v_group.max_depth) as r) + (select count(*) from (
      select from dibs.blocked as b
      where b.queue_id = v_group.queue_id and b.group_key = v_group.group_key and b.priority >= v_lowest
      limit v_group.max_depth) as b);
    v_oldest := (
      select min(r.due_at)
      from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
      cross join lateral (
        select r.due_at from dibs.ready as r
        where r.queue_id = q.id and r.group_key = v_group.group_key and r.priority = p.priority and r.due_at <= at
        order by r.due_at, r.id limit 1) as r
      where q.id = v_group.queue_id and p.priority >= v_lowest);
    continue when coalesce(v_waiting + cardinality(v_group.ords) <= v_group.max_depth, true)
      and coalesce(at - v_oldest <= v_group.max_age, true);
    if v_group.when_full = 'sideline' then
      foreach v_ord in array v_group.ords loop
        outcomes[v_ord] := 'sidelined';
      end loop;
    elsif not awaited then
      raise exception using errcode = 'DI041',
        message = format(
          'group %L of queue %L is full: %s of its jobs wait, the oldest due since %s, and this call brings %s more',
          v_group.name, v_group.queue, v_waiting, coalesce(dibs._utc_text(v_oldest), 'never'),
          cardinality(v_group.ords)),
        hint = format(
          'nothing was enqueued; at most %s may wait, and for at most %s: try again later, or change the'
          ' group with dibs.set_group',
          coalesce(v_group.max_depth::text, 'any number'), coalesce(v_group.max_age::text, 'any time'));
    end if;
  end loop;
  return outcomes;
end
$$;

comment on function dibs._check_group_depths is
'Refuse a batch for a full group, or sideline its jobs for that group. The arguments are those of _check_depth; return
the outcomes.';
