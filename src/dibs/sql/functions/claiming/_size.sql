-- A claim hands out at most 64 MB. Only claims of queues that have had a large job, and very large claims, count bytes.
-- Limits and groups choose among tickets that were taken, so sizes are added up last, and what does not fit returns to
-- ready.

create or replace function dibs._note_large(queue_ids integer[]) returns void
language plpgsql volatile
as $$
begin
  -- This updates a queue once in its life.
  update dibs.queue as q set has_large = true where q.id = any (array(
    select o.id from dibs.queue as o where not o.has_large and o.id = any (queue_ids) order by o.id for update));
end
$$;

comment on function dibs._note_large is 'Note that queues have had a large job.';

create or replace function dibs._keep_fitting(batches dibs.taken_batch[], at timestamptz) returns dibs.taken_batch[]
language plpgsql volatile
as $$
declare
  v_part record;
  v_excess dibs.taken_batch;
  v_ids uuid[];
  v_inserted bigint;
begin
  for v_part in
    select s.batch_no, array_agg(s.ord order by s.ord) filter (where s.fits) as fitting,
      array_agg(s.ord order by s.ord) filter (where not s.fits) as excess
    from (
      -- A job that is larger than a whole claim is handed out alone.
      select b.batch_no, t.ord, row_number() over places = 1
          or sum(coalesce(j.size, dibs._constant('small_job_bytes'))) over places
            <= dibs._constant('claim_bound') as fits
      from (
        -- Queues and groups come in random order: none starves. Ungrouped batches of a queue stay in order of priority.
        select b.tickets, b.ordinality::integer as batch_no, min(random()) over (
          partition by (b.queue).id, case when (b.tickets[1]).group_key is not null then b.ordinality end) as luck
        from unnest(batches) with ordinality as b) as b
      cross join lateral (
        select t.id, t.ordinality::integer as ord from unnest(b.tickets) with ordinality as t) as t
      left join lateral (select j.size from dibs.job as j where j.id = t.id offset 0) as j on true
      window places as (order by b.luck, b.batch_no, t.ord)
    ) as s
    group by s.batch_no
  loop
    continue when v_part.excess is null;
    v_excess := dibs._part_of(batches[v_part.batch_no], v_part.excess);
    batches[v_part.batch_no] := dibs._part_of(batches[v_part.batch_no], coalesce(v_part.fitting, '{}'));
    -- Put the excess back into ready, and give back the units, tokens and places that it holds of limits and groups.
    v_ids := array(select t.id from unnest(v_excess.tickets) as t);
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
      fingerprint, group_key, cost)
    select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority,
      (v_excess.queue).ring and t.ordinality = 1, t.own_lease, t.history, t.fingerprint, t.group_key, t.cost
    from unnest(v_excess.tickets) with ordinality as t;
    get diagnostics v_inserted = row_count;
    perform dibs._check_moved(cardinality(v_ids), v_inserted);
    perform dibs._return_units(u.id, sum(u.units)::integer, at, true)
    from generate_subscripts(v_ids, 1) as i
    cross join lateral unnest((v_excess.queue_units).limit_ids || (v_excess.job_units[i]).limit_ids,
      (v_excess.queue_units).limit_units || (v_excess.job_units[i]).limit_units) as u (id, units)
    group by u.id order by u.id;
    if (v_excess.queue).has_limit then
      perform dibs._return_tokens(r.id, cardinality(v_ids)) from dibs.limit_rule as r
      where r.is_set and r.of_queue = (v_excess.queue).name;
    end if;
    if (v_excess.queue).has_job_limits then
      perform dibs._return_tokens(-n.need_id, count(*)::integer)
      from unnest(v_ids) as k (id) cross join lateral dibs._job_needs(k.id) as n where n.need_id < 0 group by n.need_id;
    end if;
    if v_excess.group_holds is not null then
      perform dibs._end_group_runs(array(select t.group_key from unnest(v_excess.tickets) as t), v_excess.group_holds,
        array_fill((v_excess.queue).id, array[cardinality(v_ids)]), v_ids, at);
    end if;
    perform dibs._add_pointers(v_ids, at);
  end loop;
  return batches;
end
$$;

comment on function dibs._keep_fitting is
'Return the part of batches that a claim may hand out, at most 64 MB in all and at least one job, and put the other
tickets back into ready.';
