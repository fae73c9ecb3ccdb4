-- Jobs that no claim will ever find: without a ticket, or in a queue that is gone. None of this should ever happen.

-- Volatile: if it waits for a day that is made, it must not look with a snapshot from before.
create or replace function dibs._next_lost_jobs(after uuid, most integer, out ids uuid[], out next uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  -- One statement sees each ticket in one place. Only a history that is kept says whether a run succeeded: of jobs whose ids, which may be
  -- an hour ahead, are of a time when it was.
  with looked as materialized (
    select j.id, j.queue_id, j.history from dibs.job as j where j.id > _next_lost_jobs.after order by j.id limit most
  ), kept as materialized (
    select q.id, q.history,
      dibs._id_floor(greatest(dibs.now() - q.history_retention, q.history_since + interval '1 hour')) as since
    from dibs.queue as q where q.id in (select l.queue_id from looked as l)
  )
  select array_agg(l.id order by l.id) filter (where l.id >= k.since and coalesce(l.history, k.history) = 'all'
      and (select true from dibs.ready as t where t.id = l.id) is null
      and (select true from dibs.blocked as t where t.id = l.id) is null
      and (select true from dibs.lease as t where t.id = l.id) is null
      and (select true from dibs.dead as t where t.id = l.id) is null
      and (select true from dibs.attempt as a where a.id = l.id and a.outcome is null limit 1) is null),
    case when count(*) = most then (array_agg(l.id order by l.id desc))[1] end
  into ids, next
  from looked as l left join kept as k on k.id = l.queue_id;
end
$$;

comment on function dibs._next_lost_jobs is
'Those of the next `most` jobs after an id that have no ticket, and so read as succeeded, though no run of theirs succeeded; and where to go on.
Jobs whose history is not kept are left out: nothing says how they ended.';

create or replace function dibs._restore_jobs(ids uuid[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_tickets dibs.waiting_ticket[];
begin
  perform from dibs.job as j where j.id = any (ids) order by j.id for update;
  -- In a later statement: another repair may have put their tickets back meanwhile, and they may have run.
  v_tickets := array(
    select row(j.id, at, dibs._expiry(at, coalesce(j.ttl, q.ttl), case when j.deadline > at then j.deadline end), j.queue_id, a.run, a.charged,
      a.losses, j.priority, dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q, a.charged::integer + 1), j.history,
      (select f.hash from dibs.fingerprint as f where f.hash = j.fingerprint and f.id = j.id),
      dibs._group_key(j.queue_id, j.group_name), j.cost, 'none')::dibs.waiting_ticket
    from dibs.job as j join dibs.queue as q on q.id = j.queue_id
    cross join lateral (
      select coalesce(max(a.run), 0) as run, count(*) filter (where a.outcome in ('failed', 'lost')) as charged,
        count(*) filter (where a.outcome = 'lost') as losses, coalesce(bool_or(a.outcome is null), false) as has_succeeded
      from dibs.attempt as a where a.id = j.id) as a
    where j.id = any (ids) and not a.has_succeeded
      and (select true from dibs.ready as t where t.id = j.id) is null
      and (select true from dibs.blocked as t where t.id = j.id) is null
      and (select true from dibs.lease as t where t.id = j.id) is null
      and (select true from dibs.dead as t where t.id = j.id) is null
    order by j.id);
  perform dibs._return_tickets(v_tickets, at) where v_tickets <> '{}';
  return cardinality(v_tickets);
end
$$;

comment on function dibs._restore_jobs is 'Let jobs wait again that lost their tickets, with the attempts that their history shows; how many do.';

create or replace function dibs._next_queue_in_tickets(after integer) returns integer
language sql stable
return least(
  (select t.queue_id from dibs.ready as t where t.group_key is null and t.queue_id > after order by t.queue_id limit 1),
  (select t.queue_id from dibs.ready as t where t.group_key is not null and t.queue_id > after order by t.queue_id limit 1),
  (select t.queue_id from dibs.blocked as t where t.queue_id > after order by t.queue_id limit 1),
  (select t.queue_id from dibs.dead as t where t.queue_id > after order by t.queue_id limit 1),
  (select t.queue_id from dibs.group_pointer as t where t.queue_id > after order by t.queue_id limit 1));

comment on function dibs._next_queue_in_tickets is 'The next number of a queue that stands on a ticket or a pointer; null after the last.';

create or replace function dibs._find_missing_queues() returns integer[]
language plpgsql stable
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_id integer := dibs._next_queue_in_tickets(0);
  v_gone integer[] := array(
    select distinct l.queue_id from (select l.queue_id from dibs.lease as l limit 2 * dibs._count_bound()) as l
    where not exists (select from dibs.queue as q where q.id = l.queue_id));
begin
  while v_id is not null loop
    if not exists (select from dibs.queue as q where q.id = v_id) then
      v_gone := v_gone || v_id;
    end if;
    v_id := dibs._next_queue_in_tickets(v_id);
  end loop;
  return array(select distinct g from unnest(v_gone) as g order by g);
end
$$;

comment on function dibs._find_missing_queues is
'The numbers of queues that are gone, though tickets or pointers name them. It reads one entry of each index for a queue, and 20,000 leases.';
