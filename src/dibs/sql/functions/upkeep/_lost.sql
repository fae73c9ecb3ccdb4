-- Find and restore jobs that no claim would ever find: without a ticket, or in a queue that is gone. Neither should
-- ever happen.

-- Volatile, so that its statement has its own snapshot: it may wait for the lock of make_days, and must see what
-- was committed meanwhile.
create or replace function dibs._next_lost_jobs(after uuid, max_scanned integer, out ids uuid[], out next uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  -- All in one statement, which sees each ticket in exactly one table.
  with candidate as materialized (
    select j.id, j.queue_id, j.history from dibs.job as j where j.id > _next_lost_jobs.after
    order by j.id limit max_scanned
  ), queue as materialized (
    -- The history is complete for jobs whose id is at or above `history_from`. A job may run up to an hour before the
    -- time in its id, because a client's clock may be ahead: so add an hour.
    select q.id, q.history, dibs._id_floor(
        interval '1 hour' + greatest(dibs.now() - q.history_retention, q.history_since)) as history_from
    from dibs.queue as q where q.id in (select c.queue_id from candidate as c)
  ), recorded as materialized (
    select c.id from candidate as c join queue as q on q.id = c.queue_id
    where c.id >= q.history_from and coalesce(c.history, q.history) = 'all'
  ), lost as (
    select r.id from recorded as r
    where (select true from dibs.ready as t where t.id = r.id) is null
      and (select true from dibs.blocked as t where t.id = r.id) is null
      and (select true from dibs.lease as t where t.id = r.id) is null
      and (select true from dibs.dead as t where t.id = r.id) is null
      -- A run without an outcome succeeded.
      and (select true from dibs.attempt as a where a.id = r.id and a.outcome is null limit 1) is null
  )
  select (select array_agg(l.id order by l.id) from lost as l),
    case when count(*) = max_scanned then (array_agg(c.id order by c.id desc))[1] end
  into ids, next
  from candidate as c;
end
$$;

comment on function dibs._next_lost_jobs is
'Find, among the next `max_scanned` jobs after an id, those that have no ticket, and therefore read as succeeded,
although no run of theirs succeeded (`ids`, null if there are none). `next` is where to go on, null after the last. Jobs
whose history is not kept, or no longer, are left out: nothing says how they ended. So are jobs of missing queues.';

create or replace function dibs._restore_jobs(ids uuid[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_tickets dibs.ready[];
begin
  perform from dibs.job as j where j.id = any (ids) order by j.id for update;
  -- In a second statement: while this one waited, another repair may have restored the tickets and the jobs may have
  -- run.
  v_tickets := array(
    select dibs._ticket(id => j.id, due_at => at,
      expire_at => dibs._expiry(at, coalesce(j.ttl, q.ttl), case when j.deadline > at then j.deadline end),
      queue_id => j.queue_id, run => a.run, charged => a.charged, losses => a.losses, priority => j.priority,
      own_lease => dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q, a.charged + 1), history => j.history,
      fingerprint => (select f.hash from dibs.fingerprint as f where f.hash = j.fingerprint and f.id = j.id),
      group_key => dibs._group_key(j.queue_id, j.group_name), cost => j.cost)
    from dibs.job as j join dibs.queue as q on q.id = j.queue_id
    cross join lateral (
      select coalesce(max(a.run), 0) as run,
        count(*) filter (where a.outcome in ('failed', 'lost'))::integer as charged,
        count(*) filter (where a.outcome = 'lost')::integer as losses,
        coalesce(bool_or(a.outcome is null), false) as has_succeeded
      from dibs.attempt as a where a.id = j.id) as a
    where j.id = any (ids) and not a.has_succeeded
      and (select true from dibs.ready as t where t.id = j.id) is null
      and (select true from dibs.blocked as t where t.id = j.id) is null
      and (select true from dibs.lease as t where t.id = j.id) is null
      and (select true from dibs.dead as t where t.id = j.id) is null
    order by j.id);
  perform dibs._return_tickets(v_tickets, at);
  return cardinality(v_tickets);
end
$$;

comment on function dibs._restore_jobs is
'Make jobs that lost their tickets ready again, with the attempts that their history shows. Return how many.';

-- `ready` has one index for tickets with a group and one for the others, so it is asked twice.
create or replace function dibs._next_queue_in_tickets(after integer) returns integer
language sql stable
return least(
  (select r.queue_id from dibs.ready as r where r.group_key is null and r.queue_id > after
   order by r.queue_id limit 1),
  (select r.queue_id from dibs.ready as r where r.group_key is not null and r.queue_id > after
   order by r.queue_id limit 1),
  (select b.queue_id from dibs.blocked as b where b.queue_id > after order by b.queue_id limit 1),
  (select d.queue_id from dibs.dead as d where d.queue_id > after order by d.queue_id limit 1),
  (select p.queue_id from dibs.group_pointer as p where p.queue_id > after order by p.queue_id limit 1));

comment on function dibs._next_queue_in_tickets is
'Return the lowest queue id above `after` in any group pointer or ticket, except leases, which have no index by queue;
null if there is none. One lookup in each index.';

create or replace function dibs._find_missing_queues() returns integer[]
language plpgsql stable
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
  c_max_leases constant integer := 20000;
  v_id integer := dibs._next_queue_in_tickets(0);
  v_missing integer[] := array(
    select distinct l.queue_id from (select l.queue_id from dibs.lease as l limit c_max_leases) as l
    where not exists (select from dibs.queue as q where q.id = l.queue_id));
begin
  while v_id is not null loop
    if not exists (select from dibs.queue as q where q.id = v_id) then
      v_missing := v_missing || v_id;
    end if;
    v_id := dibs._next_queue_in_tickets(v_id);
  end loop;
  return array(select distinct m from unnest(v_missing) as m order by m);
end
$$;

comment on function dibs._find_missing_queues is
'Return the ids of queues that do not exist although tickets or pointers name them. Reads a few index entries for
each queue, and up to 20,000 leases, which have no index by queue.';
