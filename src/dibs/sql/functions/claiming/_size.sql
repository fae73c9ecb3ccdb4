-- How many bytes one claim hands out. Only queues that have had a large job pay for the counting, and very large claims.

create or replace function dibs._note_large(queue_ids integer[]) returns void
language plpgsql volatile
as $$
begin
  -- Once in a queue's life.
  update dibs.queue as q set has_large = true where q.id = any (array(
    select o.id from dibs.queue as o where not o.has_large and o.id = any (queue_ids) order by o.id for update));
end
$$;

comment on function dibs._note_large is 'Note that queues have had a large job.';

create or replace function dibs._counts_bytes(queue dibs.queue, want integer) returns boolean
language sql immutable parallel safe
return (queue).has_large or want > dibs._large_claim_jobs();

comment on function dibs._counts_bytes is 'Whether what a claim takes of a queue may be more than it may hand out.';

create or replace function dibs._put_tickets_back(batch dibs.taken_batch, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_put bigint;
  v_ids constant uuid[] := array(select t.id from unnest(batch.tickets) as t);
  v_group_keys constant uuid[] := array(select t.group_key from unnest(batch.tickets) as t);
begin
  insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
    fingerprint, group_key, cost)
  select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority,
    (batch.queue).ring and t.ordinality = 1, t.own_lease, t.history, t.fingerprint, t.group_key, t.cost
  from unnest(batch.tickets) with ordinality as t;
  get diagnostics v_put = row_count;
  perform dibs._check_moved(cardinality(v_ids), v_put);
  perform dibs._return_units(u.id, sum(u.units)::integer, at, true)
  from generate_subscripts(v_ids, 1) as i
  cross join lateral unnest((batch.queue_units).limit_ids || (batch.job_units[i]).limit_ids,
    (batch.queue_units).limit_units || (batch.job_units[i]).limit_units) as u (id, units)
  group by u.id order by u.id;
  if (batch.queue).has_limit then
    perform dibs._return_tokens(r.id, cardinality(v_ids)) from dibs.limit_rule as r
    where r.is_set and r.of_queue = (batch.queue).name;
  end if;
  if (batch.queue).has_job_limits then
    perform dibs._return_tokens(-n.need_id, count(*)::integer)
    from unnest(v_ids) as k (id) cross join lateral dibs._job_needs(k.id) as n where n.need_id < 0 group by n.need_id;
  end if;
  if batch.group_holds is not null then
    perform dibs._end_group_runs(v_group_keys, batch.group_holds, array_fill((batch.queue).id, array[cardinality(v_ids)]), v_ids, at);
  end if;
  perform dibs._add_pointers(v_ids, at);
end
$$;

comment on function dibs._put_tickets_back is
'Put tickets that a claim took, and does not lease, back to their places, with all they hold.';

create or replace function dibs._fit_batches(batches dibs.taken_batch[], at timestamptz) returns dibs.taken_batch[]
language plpgsql volatile
as $$
declare
  v_part record;
begin
  for v_part in
    -- A job that is larger than all a claim may hand out comes alone; chance decides between queues, so none starves.
    select s.n, array_agg(s.ord order by s.ord) filter (where s.place = 1 or s.total <= dibs._bound('claim')) as kept,
      array_agg(s.ord order by s.ord) filter (where s.place > 1 and s.total > dibs._bound('claim')) as dropped
    from (
      select s.n, s.ord, sum(s.size) over (order by s.luck, s.ord) as total, row_number() over (order by s.luck, s.ord) as place
      from (
        select k.n::integer as n, k.luck, t.ordinality::integer as ord, coalesce(j.size, dibs._small_job_bytes())::bigint as size
        from (select k.tickets, k.ordinality as n, random() as luck from unnest(batches) with ordinality as k) as k
        cross join lateral unnest(k.tickets) with ordinality as t
        left join lateral (select j.size from dibs.job as j where j.id = t.id offset 0) as j on true) as s) as s
    group by s.n
  loop
    continue when v_part.dropped is null;
    perform dibs._put_tickets_back(dibs._part_of(batches[v_part.n], v_part.dropped), at);
    batches[v_part.n] := dibs._part_of(batches[v_part.n], coalesce(v_part.kept, '{}'));
  end loop;
  return batches;
end
$$;

comment on function dibs._fit_batches is
'What a claim may hand out of what it took: at most 64 MB in all, and at least one job. The rest is put back.';
