-- A claim of one job of a plain queue, right after a claim that found one: from the same floor, and without a look back.

create or replace function dibs._is_quick(floor dibs.floor, priority smallint) returns boolean
language sql volatile
-- A time further ahead than we would ever set it was set before the clock stepped back.
return (floor).priorities = array[priority] and (floor).quick_until - dibs._micros(clock_timestamp()) between 1 and dibs._floor_reuse_us();

comment on function dibs._is_quick is 'Whether a claim of one job may start from this floor and leave it as it is.';

create or replace function dibs._claim_one(queue dibs.queue, floor dibs.floor, claim dibs.claim_order) returns dibs.claimed
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_queue constant integer := queue.id;
  v_priority constant smallint := queue.priority;
  v_from_at constant timestamptz := dibs._from_micros(floor.due_us[1]);
  v_from_id constant uuid := floor.ids[1];
  v_at constant timestamptz := claim.at;
  v_held record;
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
  insert into dibs.lease (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run, charged, losses, priority,
    own_lease, history, worker, fingerprint, cost)
  select g.id, claim.token, g.due_at, g.expire_at, g.at, g.at + coalesce(claim.lease, g.own_lease,
      dibs._lease_length(queue.lease, queue.lease_growth, queue.lease_cap, g.charged + 1)),
    v_queue, g.run + 1, g.charged + 1, g.losses, v_priority, g.own_lease, g.history, claim.worker, g.fingerprint, g.cost
  from gone as g
  returning lease.id, lease.run, lease.charged, lease.losses, lease.due_at, lease.claimed_at, lease.lease_until into v_held;
  if not found then
    return null;
  end if;
  select v_held.id, claim.token, queue.name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers, v_priority,
    v_held.run, v_held.charged, coalesce(j.max_attempts, queue.max_attempts), v_held.losses, v_held.due_at, j.deadline,
    v_held.claimed_at, v_held.lease_until
  into v_job
  from (select) as one left join dibs.job as j on j.id = v_held.id;
  return v_job;
end
$$;

comment on function dibs._claim_one is
'The next job of a plain queue from this floor on, leased; null if there is none, or if the queue has had other priorities. Most of what
a batch costs is its beginning.';
