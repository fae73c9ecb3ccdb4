-- The short path of a claim of one job: for 20 ms after a claim found one in a simple queue, the next starts at the same floor, without
-- raising it and without a look-back.

create or replace function dibs._may_reuse(floor dibs.floor, priority smallint) returns boolean
language sql volatile
-- Ignore a time later than any we would set: the clock was set back.
return (floor).priorities = array[priority] and (floor).reuse_until - dibs._micros(clock_timestamp()) between 1 and dibs._constant('floor_reuse_us');

comment on function dibs._may_reuse is
'True if a claim of one job may start at this floor and leave it as it is. Null without a floor.';

create or replace function dibs._claim_one(queue dibs.queue, floor dibs.floor, claim dibs.claim_request) returns dibs.claimed
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_queue constant integer := queue.id;
  v_priority constant smallint := queue.priority;
  v_from_at constant timestamptz := dibs._from_micros(floor.due_us[1]);
  v_from_id constant uuid := floor.ids[1];
  v_at constant timestamptz := claim.at;
  v_lease record;
  v_job dibs.claimed;
begin
  with gone as (
    delete from dibs.ready as r where r.ctid = (
      select r.ctid from dibs.ready as r
      where r.queue_id = v_queue and r.priority = v_priority and r.group_key is null
        and (r.due_at, r.id) >= (v_from_at, v_from_id) and r.due_at <= v_at and r.expire_at > v_at
        and not exists (select from dibs.queue_priority as p where p.queue_id = v_queue)
      order by r.due_at, r.id limit 1
      for update of r skip locked)
    returning r.id, r.due_at, r.expire_at, r.run, r.charged, r.losses, r.own_lease, r.history, r.fingerprint, r.cost, dibs.now() as at
  )
  insert into dibs.lease as l (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run, charged, losses, priority,
    own_lease, history, worker, fingerprint, cost)
  select g.id, claim.token, g.due_at, g.expire_at, g.at, g.at + coalesce(claim.lease, g.own_lease,
      dibs._lease_length(queue.lease, queue.lease_growth, queue.lease_cap, g.charged + 1)),
    v_queue, g.run + 1, g.charged + 1, g.losses, v_priority, g.own_lease, g.history, claim.worker, g.fingerprint, g.cost
  from gone as g
  returning l.id, l.run, l.charged, l.losses, l.due_at, l.claimed_at, l.lease_until into v_lease;
  if not found then
    return null;
  end if;
  select v_lease.id, claim.token, queue.name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers, v_priority,
    v_lease.run, v_lease.charged, coalesce(j.max_attempts, queue.max_attempts), v_lease.losses, v_lease.due_at, j.deadline,
    v_lease.claimed_at, v_lease.lease_until
  into v_job
  from (select) as one left join dibs.job as j on j.id = v_lease.id;
  return v_job;
end
$$;

comment on function dibs._claim_one is
'Lease the next job of a simple queue from this floor on, and return it; null if there is none, or if its jobs have had other priorities.
Most of the cost of a claim does not depend on its number of jobs, so a claim of one has its own path.';
