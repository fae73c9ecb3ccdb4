-- Jobs that arrive while a queue or a group is full: refuse them, or sideline them (give them the lowest priority).

create or replace function dibs._check_depth(
  jobs jsonb, duplicate_of uuid[], is_follow_up boolean, at timestamptz,
  inout outcomes text[], out sidelining_queues integer[])
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
    -- Duplicates, and jobs with an outcome by now (they replace another job), do not make the queue longer.
    v_ords := array(
      select e.ord from jsonb_array_elements(jobs) with ordinality as e (job, ord)
      where e.job ->> 'queue' = any (v_names) and duplicate_of[e.ord] is null and outcomes[e.ord] is null);
    continue when v_ords = '{}';
    v_pressure := dibs._read_pressure(v_queue, at);
    if v_pressure.waiting + cardinality(v_ords) > v_queue.max_depth or at - v_pressure.oldest_due > v_queue.max_age then
      if v_queue.when_full = 'sideline' then
        sidelining_queues := sidelining_queues || dibs._queue_numbers(v_queue.id);
        foreach v_ord in array v_ords loop
          outcomes[v_ord] := 'sidelined';
        end loop;
      elsif not is_follow_up then
        raise exception using errcode = 'DI041',
          message = case when v_pressure.waiting + cardinality(v_ords) > v_queue.max_depth then format(
            'queue %L is full: %s jobs wait, at most %s may, and this call brings %s more', v_queue.name,
            least(v_pressure.waiting, v_queue.max_depth), v_queue.max_depth, cardinality(v_ords))
          else format('queue %L is full: its oldest job has been due for %s, and at most %s is allowed', v_queue.name,
            date_trunc('milliseconds', at - v_pressure.oldest_due), v_queue.max_age) end,
          hint = 'nothing was enqueued; try again later, add workers, or raise the queue''s max_depth or max_age';
      end if;
    else
      v_pressure.waiting := v_pressure.waiting + cardinality(v_ords);
    end if;
    perform dibs._remember('pressure', v_queue.id,
      dibs._pressure_seal(v_queue.id, v_pressure::text) || v_pressure::text);
  end loop;
end
$$;

comment on function dibs._check_depth is
'Raise DI041 for a batch that does not fit into a full queue, or sideline its jobs: set their `outcomes`, and return the
ids of the queue and its shards in `sidelining_queues`. Duplicates (`duplicate_of`) do not count. A batch that
`is_follow_up` is never refused.';

create or replace function dibs._check_group_depths(
  jobs jsonb, duplicate_of uuid[], is_follow_up boolean, at timestamptz, outcomes text[]) returns text[]
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
      where e.job ->> 'group' is not null and q.has_group_policy
        and duplicate_of[e.ord] is null and outcomes[e.ord] is null
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
    if v_group.max_age is not null then
      v_oldest := least(v_oldest, (
        select min(b.due_at) from dibs.blocked as b
        where b.queue_id = v_group.queue_id and b.group_key = v_group.group_key and b.priority >= v_lowest));
    end if;
    continue when coalesce(v_waiting + cardinality(v_group.ords) <= v_group.max_depth, true)
      and coalesce(at - v_oldest <= v_group.max_age, true);
    if v_group.when_full = 'sideline' then
      foreach v_ord in array v_group.ords loop
        outcomes[v_ord] := 'sidelined';
      end loop;
    elsif not is_follow_up then
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
'Raise DI041 for a batch that does not fit into a full group, or sideline its jobs of that group. The arguments are as
in `_check_depth`. Return the outcomes.';
