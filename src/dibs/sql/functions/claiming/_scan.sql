-- What a claim knows of its queues: opened before it looks, closed when it has taken what it may.

create or replace function dibs._claim_queues(queues text[], want integer, token uuid, repeats boolean, claim dibs.claim_order)
returns dibs.queue[]
language plpgsql volatile
as $$
declare
  v_found dibs.queue[];
  v_queue dibs.queue;
  v_has_kinds boolean;
  v_checked boolean := false;
begin
  if not coalesce(dibs._is_claim(queues, want, claim.lease, claim.token), false) or repeats and token is null then
    perform dibs._refuse_claim(queues, want, claim.lease, token);
  end if;
  -- claim_lock is locked like any table of a statement, for _wait_for_claims, and never read: this join changes nothing, so the planner
  -- leaves it out.
  select array(
      select q from dibs.queue as q left join dibs.claim_lock as l on l.n = 0
      where q.name = any (queues) and q.paused_at is null order by q.id),
    exists (select from dibs.limit_rule as b where b.of_any_queue)
  into v_found, v_has_kinds;
  -- Limits of kinds are of every queue, also of one that a producer is making at this moment.
  if v_has_kinds then
    for n in 1 .. cardinality(v_found) loop
      v_found[n].has_job_limits := true;
    end loop;
  end if;
  foreach v_queue in array v_found loop
    -- All names at once, and before a shard of another queue can say that it is there.
    if v_queue.is_confined and not v_checked then
      perform dibs._check_queue_access(queues);
      v_checked := true;
    end if;
    if v_queue.shards is not null or v_queue.shard_of is not null then
      perform dibs._fence_shard(v_queue, claim.worker, claim.at);
    end if;
  end loop;
  if cardinality(v_found) = 0 and dibs._is_confined() then
    perform dibs._check_queue_access(queues);
  end if;
  return v_found;
end
$$;

comment on function dibs._claim_queues is
'The queues of a claim that are not paused. Whatever may refuse the claim does so here, before a scan is opened.';

create or replace function dibs._is_newest_first(queue dibs.queue) returns boolean
language sql immutable
return (queue).newest_first and not (queue).has_limit and not (queue).has_job_limits and not (queue).has_groups;

comment on function dibs._is_newest_first is
'Whether a claim serves a queue from its newest end. Groups and limits have their own order, so a queue that knows them is
served from its oldest end.';

create or replace function dibs._open_scan(queue dibs.queue, want integer, began_us bigint, claim dibs.claim_order) returns dibs.queue_scan
language plpgsql volatile
as $$
declare
  v_top bigint := dibs._micros(claim.at) - dibs._commit_lag_us();
  v_told constant dibs.floor := dibs._recall('floor', queue.id)::dibs.floor;
  v_priorities constant smallint[] := dibs._priorities(queue);
  v_scan dibs.queue_scan;
begin
  v_scan.queue := queue;
  v_scan.allowed := want;
  if queue.has_limit then
    v_scan.reservation := dibs._reserve_queue_limit(queue, want, claim.at);
    v_scan.allowed := (v_scan.reservation).allowed;
    if v_scan.allowed = 0 then
      perform dibs._settle_queue_limits(array[v_scan], claim.at);
      return null;
    end if;
  end if;
  v_scan.floor := dibs._read_floor('floor', queue.id, v_told, v_priorities, v_top);
  v_scan.back := dibs._look_back('floor', queue.id, v_scan.floor, began_us);
  -- What is found empty has its floor at the top; the claim lowers the others.
  v_scan.next := v_scan.floor;
  v_scan.next.due_us := array_fill(v_top, array[cardinality((v_scan.floor).due_us)]);
  v_scan.next.ids := array_fill(dibs._nil_id(), array[cardinality((v_scan.floor).due_us)]);
  return v_scan;
end
$$;

comment on function dibs._open_scan is 'Begin to claim from a queue; null when its own limit lets nothing start.';

create or replace function dibs._close_scans(scans dibs.queue_scan[], took bigint) returns void
language plpgsql volatile
as $$
declare
  v_scan dibs.queue_scan;
begin
  foreach v_scan in array scans loop
    perform dibs._write_floor('floor', (v_scan.queue).id, v_scan.next, v_scan.floor, v_scan.back, took / cardinality(scans));
  end loop;
end
$$;

comment on function dibs._close_scans is 'Remember where the next claim of these queues starts.';
