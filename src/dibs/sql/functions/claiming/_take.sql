-- The scan step of every claim, and the two short paths: a simple queue, and one job soon after another.

create or replace function dibs._taken_batch(
  queue dibs.queue, tickets dibs.ready[], at timestamptz, queue_units dibs.held_units default null)
returns dibs.taken_batch
language sql immutable parallel safe
return row(queue, tickets, null, queue_units, null, at)::dibs.taken_batch;

comment on function dibs._taken_batch is 'Return a batch of tickets without a group. The planner inlines it.';

create or replace function dibs._take_priority(
  queue_id integer, priority smallint, floor dibs.floor_place, from_at timestamptz, from_id uuid, want integer,
  at timestamptz, top_us bigint, out tickets dibs.ready[], out next_floor dibs.floor_place)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_first dibs.floor_place;
begin
  with gone as (
    delete from dibs.ready as r where r.ctid = any (array(
      select r.ctid from dibs.ready as r
      where r.queue_id = _take_priority.queue_id and r.priority = _take_priority.priority and r.group_key is null
        and (r.due_at, r.id) >= (_take_priority.from_at, _take_priority.from_id)
        and r.due_at <= _take_priority.at and r.expire_at > _take_priority.at
      order by r.due_at, r.id limit want
      for update skip locked))
    returning r, r.due_at, r.id
  )
  select array_agg(g.r order by g.due_at, g.id) into tickets from gone as g;
  if tickets is null then
    -- A ticket that is still there is locked, or has expired and is yet to be ended. The floor does not rise above it.
    v_first.due_us := coalesce((
      select dibs._micros(r.due_at) from dibs.ready as r
      where r.queue_id = _take_priority.queue_id and r.priority = _take_priority.priority and r.group_key is null
        and (r.due_at, r.id) >= (_take_priority.from_at, _take_priority.from_id) and r.due_at <= _take_priority.at
      order by r.due_at, r.id limit 1), top_us);
    v_first.id := dibs._nil_id();
  else
    v_first.due_us := dibs._micros(tickets[1].due_at);
    v_first.id := tickets[1].id;
  end if;
  next_floor := dibs._moved_floor(floor, v_first, top_us, cardinality(tickets) = want);
end
$$;

comment on function dibs._take_priority is
'Take up to `want` tickets of one priority of a queue, the earliest due first, starting at (`from_at`, `from_id`): at
the floor, below it in a look-back, or at the first ticket there is. Tickets of groups are left out. `tickets` is null
if there is none. `next_floor` is where the next claim starts (_moved_floor).';

create or replace function dibs._take_simple(
  queue dibs.queue, remembered dibs.floor, want integer, claim dibs.claim_request)
returns dibs.taken_batch
language plpgsql volatile
as $$
declare
  v_began constant bigint := dibs._micros(clock_timestamp());
  v_top constant bigint := dibs._micros(claim.at) - dibs._constant('commit_lag_us');
  v_priorities constant smallint[] := dibs._priorities(queue);
  v_floor constant dibs.floor := dibs._begin_scan('floor', queue.id, remembered, v_priorities, v_top, v_began);
  v_next_floor dibs.floor := v_floor;
  v_taken dibs.ready[] := '{}'::dibs.ready[];
  v_step record;
  v_remembered text;
begin
  for n in 1 .. cardinality(v_priorities) loop
    v_step := dibs._take_priority(queue.id, v_priorities[n], row(v_floor.due_us[n], v_floor.ids[n])::dibs.floor_place,
      dibs._from_micros(v_floor.due_us[n] - v_floor.look_back),
      case when v_floor.look_back = 0 then v_floor.ids[n] else dibs._nil_id() end, want, claim.at, v_top);
    v_next_floor.due_us[n] := (v_step.next_floor).due_us;
    v_next_floor.ids[n] := (v_step.next_floor).id;
    continue when v_step.tickets is null;
    v_taken := v_taken || v_step.tickets;
    want := want - cardinality(v_step.tickets);
    exit when want = 0;
  end loop;
  if want = 0 and cardinality(v_taken) = 1 then
    v_next_floor.reuse_until := v_began + dibs._constant('floor_reuse_us');
  end if;
  -- An assignment is quicker than PERFORM.
  v_remembered := dibs._end_scan(
    'floor', queue.id, v_floor, v_next_floor, dibs._micros(clock_timestamp()) - v_began);
  return dibs._taken_batch(queue, v_taken, claim.at);
end
$$;

comment on function dibs._take_simple is
'Take up to `want` tickets of one simple queue, by priority and then due time: the same as _take_oldest, for less. A
queue is simple if it is served oldest first, without groups and limits, and the claim need not count bytes. Priorities
that it does not reach keep their floors. `remembered` is the floor of the session, or null.';

create or replace function dibs._claim_one(queue dibs.queue, floor dibs.floor, claim dibs.claim_request)
returns dibs.claimed
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
    returning r.id, r.due_at, r.expire_at, r.run, r.charged, r.losses, r.own_lease, r.history, r.fingerprint, r.cost,
      dibs.now() as at
  )
  insert into dibs.lease as l (id, token, due_at, expire_at, claimed_at, lease_until, queue_id, run, charged, losses,
    priority, own_lease, history, worker, fingerprint, cost)
  select g.id, claim.token, g.due_at, g.expire_at, g.at, g.at + coalesce(claim.lease, g.own_lease,
      dibs._lease_length(queue.lease, queue.lease_growth, queue.lease_cap, g.charged + 1)),
    v_queue, g.run + 1, g.charged + 1, g.losses, v_priority, g.own_lease, g.history, claim.worker, g.fingerprint, g.cost
  from gone as g
  returning l.id, l.run, l.charged, l.losses, l.due_at, l.claimed_at, l.lease_until into v_lease;
  if not found then
    return null;
  end if;
  select c.* into v_job
  from dibs._claimed(v_lease.id, claim.token, queue.name, v_priority, v_lease.run, v_lease.charged, queue.max_attempts,
    v_lease.losses, v_lease.due_at, v_lease.claimed_at, v_lease.lease_until, v_lease.id, v_lease.id) as c;
  return v_job;
end
$$;

comment on function dibs._claim_one is
'Lease the next job of a simple queue from this floor on, and return it; null if there is none, or if its jobs have had
other priorities. `claim` calls it for 20 ms after it took one job from the queue: it starts at the same floor, without
raising it and without a look-back. Most of the cost of a claim does not depend on its number of jobs, so a claim of one
has its own path.';
