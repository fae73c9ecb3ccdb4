-- claim: ready → lease.

create or replace function dibs._claim_queues(
  queues text[], max integer, token uuid, repeats boolean, claim dibs.claim_request)
returns dibs.queue[]
language plpgsql volatile
as $$
declare
  v_queues dibs.queue[];
  v_queue dibs.queue;
  v_has_kind_limits boolean;
begin
  -- One expression accepts a correct call. Find out what is wrong if it fails.
  if (current_setting('transaction_isolation') = 'read committed'
      and cardinality(queues) between 1 and dibs._constant('names_bound') and max between 1 and 10000
      and (claim.lease between interval '100 ms' and interval '7 days') is not false
      and substr(claim.token::text, 15, 1) = '4' and not (repeats and token is null)) is not true then
    perform dibs._check_isolation('claim');
    raise exception using errcode = 'DI010',
      message = case
        when coalesce(cardinality(queues), 0) not between 1 and dibs._constant('names_bound') then
          format('claim takes the names of 1 to 10000 queues, not %s', coalesce(cardinality(queues), 0))
        when coalesce(max, 0) not between 1 and 10000 then
          format('claim takes 1 to 10000 jobs at once, not %s', coalesce(max::text, 'null'))
        when claim.lease not between interval '100 ms' and interval '7 days' then
          format('a lease lasts from 100 ms to 7 days, not %s', claim.lease)
        else
          format('a claim''s token is a random UUID (version 4), not %s; repeats needs one',
            coalesce(token::text, 'none')) end,
      hint = 'such as: select * from dibs.claim(array[''mail''], 10)';
  end if;
  -- The join locks claim_lock, for _stop_claims. The planner drops a left join on a unique key, so it reads nothing.
  select array(
      select q from dibs.queue as q left join dibs.claim_lock as l on l.n = 0
      where q.name = any (queues) and q.paused_at is null order by q.id),
    exists (select from dibs.limit_rule as b where b.of_any_queue)
  into v_queues, v_has_kind_limits;
  -- is_confined is the same for all queues; it is null if none was found. Check access before touching a shard, whose
  -- error would reveal that the queue exists.
  if (v_queues[1]).is_confined is not false then
    perform dibs._check_queue_access(queues);
  end if;
  -- Limits of kinds apply to every queue, even to one that another transaction is creating. A very large claim adds up
  -- sizes even where no job is large.
  if v_has_kind_limits or max > dibs._constant('large_claim_jobs') then
    for n in 1 .. cardinality(v_queues) loop
      v_queues[n].has_job_limits := (v_queues[n]).has_job_limits or v_has_kind_limits;
      v_queues[n].has_large := (v_queues[n]).has_large or max > dibs._constant('large_claim_jobs');
    end loop;
  end if;
  foreach v_queue in array v_queues loop
    continue when v_queue.shards is null and v_queue.shard_of is null;
    -- This lock keeps the shard with its holder until the claim is committed. Renewals do not wait for it.
    perform from dibs.shard as s
    where s.queue_id = v_queue.id and s.worker = claim.worker and s.held_until > claim.at and s.is_drained
    for key share;
    continue when found;
    raise exception using errcode = 'DI060',
      message = format('%s does not hold %L, so it cannot claim from it',
        coalesce('worker ' || claim.worker, 'a client that is no worker'), v_queue.name),
      hint = 'one worker at a time pulls from it: hold it with dibs.hold_shards, and claim from the names it returns';
  end loop;
  return v_queues;
end
$$;

comment on function dibs._claim_queues is
'Return the queues of a claim that are not paused, or refuse the claim: no later step of a claim refuses it. In the rows
returned, has_job_limits and has_large are true for what this claim has to check.';

create or replace function dibs._claimed(
  id uuid, token uuid, queue text, priority smallint, run integer, attempt smallint, max_attempts integer,
  losses smallint, due_at timestamptz, claimed_at timestamptz, lease_until timestamptz, from_id uuid, upto_id uuid)
returns setof dibs.claimed
language sql stable
begin atomic
  select _claimed.id, _claimed.token, _claimed.queue, coalesce(j.kind, ''), j.payload, j.body, j.content_type,
    j.headers, _claimed.priority, _claimed.run, _claimed.attempt,
    coalesce(j.max_attempts, _claimed.max_attempts), _claimed.losses, _claimed.due_at, j.deadline, _claimed.claimed_at,
    _claimed.lease_until
  from (select) as one
  -- OFFSET 0 keeps it a lookup by id: planned while partitions are empty, a join could read them whole later.
  left join lateral (
    select j.kind, j.payload, j.body, j.content_type, j.headers, j.max_attempts, j.deadline
    from dibs.job as j where j.id = _claimed.id and j.id between from_id and upto_id offset 0) as j on true;
end;

comment on function dibs._claimed is
'Return a job as a claim hands it out: the fields of its lease, and its row in `job`. `max_attempts` is the queue''s.
From `from_id` to `upto_id` are the ids of all jobs of the statement: it leaves out the partitions of other days. The
planner inlines it.';

create or replace function dibs._leased_by(token uuid, worker bigint, queues text[]) returns setof dibs.claimed
language plpgsql stable
as $$
#variable_conflict use_column
begin
  -- Tokens have no index: every heartbeat would have to maintain it, and claims are rarely repeated.
  return query
  select c.* from dibs.lease as l
  join dibs.queue as q on q.id = l.queue_id
  cross join lateral dibs._claimed(l.id, l.token, q.name, l.priority, l.run, l.charged, q.max_attempts, l.losses,
    l.due_at, l.claimed_at, l.lease_until, l.id, l.id) as c
  where l.token = _leased_by.token and l.worker is not distinct from _leased_by.worker and q.name = any (queues)
    and (not q.is_confined or coalesce(q.id = any (dibs.confined_to()), true))
  order by l.priority desc, l.due_at, l.id;
end
$$;

comment on function dibs._leased_by is
'Return the jobs that a token holds, for a client that lost the answer to its claim: only jobs of this worker and of
these queues, and none that the caller may not use.';

create or replace function dibs.claim(
  queues text[], max integer default 1, worker uuid default null, lease interval default null,
  token uuid default null, repeats boolean default false)
returns setof dibs.claimed
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_claim dibs.claim_request := row(coalesce(token, gen_random_uuid()),
    case when worker is not null then dibs._worker_number(worker) end, lease, dibs.now());
  v_queues dibs.queue[] := dibs._claim_queues(queues, max, token, repeats, v_claim);
  v_queue dibs.queue := v_queues[1];
  v_is_simple boolean := cardinality(v_queues) = 1 and not (v_queue.newest_first or v_queue.has_limit
    or v_queue.has_job_limits or v_queue.has_groups or v_queue.has_large);
  v_floor dibs.floor := case when v_is_simple then dibs._recall('floor', v_queue.id)::dibs.floor end;
  v_job dibs.claimed;
  v_batch dibs.taken_batch;
  v_count integer;
  v_ids uuid[];
  v_at timestamptz;
  v_leased bigint;
begin
  if repeats then
    return query select l.* from dibs._leased_by(v_claim.token, v_claim.worker, queues) as l;
    if found then return; end if;
  end if;
  if max = 1 and (v_floor).priorities = array[v_queue.priority]
    and (v_floor).reuse_until - dibs._micros(clock_timestamp()) between 1 and dibs._constant('floor_reuse_us') then
    v_job := dibs._claim_one(v_queue, v_floor, v_claim);
    if v_job.id is not null then return next v_job; return; end if;
  end if;
  foreach v_batch in array case when v_is_simple then array[dibs._take_simple(v_queue, v_floor, max, v_claim)]
    else dibs._take_from_queues(v_queues, max, v_claim) end
  loop
    v_count := cardinality(v_batch.tickets);
    continue when v_count = 0;
    v_at := dibs.now();  -- Read the clock again: no run begins before the last run of its job ended.
    v_queue := v_batch.queue;  -- A field of a field is slow to read for each row.
    if v_count = 1 then
      v_ids := array[v_batch.tickets[1].id];
    else
      v_ids := array(select t.id from unnest(v_batch.tickets) as t order by t.id);
    end if;
    return query with leased as (
      insert into dibs.lease (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run, charged,
        losses, priority, own_lease, history, worker, fingerprint, group_key, cost, group_hold, limit_ids, limit_units)
      select t.id, v_claim.token, t.due_at, t.expire_at, v_at, v_at + coalesce(claim.lease, t.own_lease,
          dibs._lease_length(v_queue.lease, v_queue.lease_growth, v_queue.lease_cap, t.charged + 1)),
        t.queue_id, t.run + 1, t.charged + 1, t.losses, t.priority, t.own_lease, t.history, v_claim.worker,
        t.fingerprint, t.group_key, t.cost, nullif(v_batch.group_holds[t.ordinality], 'none'),
        (v_batch.queue_units).limit_ids || (v_batch.job_units[t.ordinality]).limit_ids,
        (v_batch.queue_units).limit_units || (v_batch.job_units[t.ordinality]).limit_units
      from unnest(v_batch.tickets) with ordinality as t
      returning id, priority, run, charged, losses, due_at, lease_until)
    select c.* from leased as l
    cross join lateral dibs._claimed(l.id, v_claim.token, v_queue.name, l.priority, l.run, l.charged,
      v_queue.max_attempts, l.losses, l.due_at, v_at, l.lease_until, v_ids[1], v_ids[v_count]) as c;
    get diagnostics v_leased = row_count;
    if v_leased <> v_count then
      perform dibs._check_moved(v_count, v_leased);
    end if;
  end loop;
end
$$;

comment on function dibs.claim is
'Take up to `max` due jobs of the queues named, by priority and then due time, and hold each under a lease. Of several
queues with jobs of one priority, the one whose oldest has waited longest is served first. A newest-first queue gives
the latest due first. The groups of a queue take turns; its jobs without a group count as one more. All jobs carry the
same token, which proves that the caller holds them. `worker` is what `register_worker` returned. `lease` overrides the
policy''s. `token` is a random UUID that the caller made for this claim alone; if the answer is lost, the same call with
`repeats` returns the jobs that the token holds, and claims only if there are none. Works in READ COMMITTED only.';
