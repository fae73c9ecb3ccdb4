-- claim: ready → lease. ARCHITECTURE.md, "The floor", says what makes it immune to dead rows.

create or replace function dibs.claim(
  queues text[], max integer default 1, worker uuid default null, lease interval default null, token uuid default null, repeats boolean default false)
returns setof dibs.claimed
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_token uuid := coalesce(claim.token, gen_random_uuid());
  v_worker bigint := case when claim.worker is not null then dibs._worker_number(claim.worker) end;
  v_claim dibs.claim_order := row(v_token, v_worker, claim.lease, dibs.now());
  v_queues constant dibs.queue[] := dibs._claim_queues(queues, claim.max, claim.token, repeats, v_claim);
  v_queue dibs.queue := v_queues[1];
  v_is_plain constant boolean := cardinality(v_queues) = 1 and dibs._is_plain(v_queue, claim.max);
  v_floor constant dibs.floor := case when v_is_plain then dibs._recall('floor', v_queue.id)::dibs.floor end;
  v_batch dibs.taken_batch;
  v_needs dibs.held_units[];
  v_range uuid[];
  v_job dibs.claimed;
  v_at timestamptz;
  v_put bigint;
begin
  if repeats then
    return query select h.* from dibs._held_by(v_token, v_worker, queues) as h;
    if found then return; end if;
  end if;
  if claim.max = 1 and dibs._is_quick(v_floor, v_queue.priority) then
    v_job := dibs._claim_one(v_queue, v_floor, v_claim);
    if v_job.id is not null then
      return next v_job;
      return;
    end if;
  end if;
  foreach v_batch in array case when v_is_plain
    then array[row(v_queue, dibs._take_single(v_queue, v_floor, claim.max, v_claim), null, null, null, v_claim.at)::dibs.taken_batch]
    else dibs._take_from(v_queues, claim.max, v_claim) end loop
    continue when cardinality(v_batch.tickets) = 0;
    v_at := dibs.now();  -- Read again: what was taken may have been put back since, and no run begins before the last one ended.
    v_queue := v_batch.queue;  -- Separate variables: a field of a record is slow to read for each row.
    v_needs := v_batch.job_units;
    v_range := dibs._id_range(v_batch.tickets);
    return query with held as (
      insert into dibs.lease (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run, charged, losses, priority,
        own_lease, history, worker, fingerprint, group_key, cost, group_hold, limit_ids, limit_units)
      select t.id, v_token, t.due_at, t.expire_at, v_at, v_at + coalesce(claim.lease, t.own_lease,
          dibs._lease_length(v_queue.lease, v_queue.lease_growth, v_queue.lease_cap, t.charged + 1)),
        t.queue_id, t.run + 1, t.charged + 1, t.losses, t.priority, t.own_lease, t.history, v_worker, t.fingerprint,
        t.group_key, t.cost, coalesce(v_batch.group_holds[t.ordinality], 'none'),
        case when v_needs is null then (v_batch.queue_units).limit_ids else (v_batch.queue_units).limit_ids || (v_needs[t.ordinality]).limit_ids end,
        case when v_needs is null then (v_batch.queue_units).limit_units else (v_batch.queue_units).limit_units || (v_needs[t.ordinality]).limit_units end
      from unnest(v_batch.tickets) with ordinality as t
      returning lease.id, lease.run, lease.charged, lease.losses, lease.priority, lease.due_at, lease.lease_until)
    select h.id, v_token, v_queue.name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers, h.priority,
      h.run, h.charged, coalesce(j.max_attempts, v_queue.max_attempts), h.losses, h.due_at, j.deadline, v_at, h.lease_until
    from held as h
    -- OFFSET 0 keeps it a lookup by key: planned on empty partitions, a join could read them whole later. By the range other days are left out.
    left join lateral (
      select j.kind, j.payload, j.body, j.content_type, j.headers, j.max_attempts, j.deadline from dibs.job as j
      where j.id = h.id and j.id between v_range[1] and v_range[2] offset 0) as j on true;
    get diagnostics v_put = row_count;
    continue when v_put = cardinality(v_batch.tickets);
    perform dibs._check_moved(cardinality(v_batch.tickets), v_put);
  end loop;
end
$$;

comment on function dibs.claim is
'Take up to `max` due jobs of the queues named, by priority and then due time, and hold each under a lease; of several
queues with jobs of one priority, the one whose oldest has waited longest is served first. A newest-first queue gives the
latest due first. The groups of a queue take turns; its jobs without a group count as one more. All carry the token that
proves it. `worker` is what `register_worker` returned. `lease` overrides the policy''s. `token` is a random UUID of the
caller''s, made for this claim alone; if the answer is lost, the same call with `repeats` returns what that token holds, and
claims only if that is nothing. Works in READ COMMITTED only.';
