-- move: move waiting and dead jobs to another queue.

create or replace function dibs._ticket_in_queue(ticket dibs.ready, job dibs.job, queue dibs.queue, at timestamptz)
returns dibs.ready
language sql stable
return dibs._ticket(id => (ticket).id, due_at => greatest((ticket).due_at, at), expire_at => (ticket).expire_at,
  queue_id => (queue).id, run => (ticket).run, charged => (ticket).charged, losses => (ticket).losses,
  priority => (ticket).priority,
  own_lease => dibs._job_lease((job).lease, (job).lease_growth, (job).lease_cap, queue, (ticket).charged + 1),
  history => (ticket).history, fingerprint => (ticket).fingerprint,
  group_key => dibs._group_key((queue).id, (job).group_name), cost => (ticket).cost);

comment on function dibs._ticket_in_queue is
'Return a ticket as it is in another queue. It is due no earlier than now, because claims of that queue may not look
further back.';

create or replace function dibs._shard_of_job(id uuid, queue_id integer, shards integer) returns integer
language sql stable
return (
  select coalesce(s.id, _shard_of_job.queue_id) from dibs.job as j
  left join dibs.queue as s on s.shard_of = _shard_of_job.queue_id
    and s.shard = dibs._shard_for(coalesce(j.group_name, j.id::text), _shard_of_job.shards)
  where j.id = _shard_of_job.id);

comment on function dibs._shard_of_job is
'The id of the shard that a job belongs to, by its group, or by its id without one; the id of the queue if there is no
such shard.';

create or replace function dibs._move_jobs(
  ids uuid[], filter dibs.job_filter, to_queue integer, at timestamptz) returns bigint
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_withdrawn dibs.ready[];
  v_dead uuid[];
  v_moved uuid[];
  v_shards integer := (select q.shards from dibs.queue as q where q.id = to_queue);
  v_tickets dibs.ready[];
begin
  -- Lock queues, then dedup keys, then tickets, in the order of producers.
  update dibs.queue as q set has_groups = q.has_groups or n.groups, has_job_limits = q.has_job_limits or n.resources,
    has_large = q.has_large or n.large
  from (
    select o.id, j.groups, j.resources, j.large from dibs.queue as o cross join (
      select bool_or(j.group_name is not null) as groups, bool_or(j.resources is not null) as resources,
        coalesce(bool_or(j.size > dibs._constant('large_job_bytes')), false) as large
      from dibs.job as j where j.id = any (ids)) as j
    where o.id = any (dibs._queue_numbers(to_queue))
      and (j.groups and not o.has_groups or j.resources and not o.has_job_limits or j.large and not o.has_large)
    order by o.id for update of o) as n
  where q.id = n.id;
  perform dibs._lock_dedup_keys(ids);
  -- Since the jobs were found, some may have been moved to another queue, have died, or were retried. Take those that
  -- still wait, or are still dead, as the filter says.
  if filter.states && '{scheduled,ready,blocked}'::text[] then
    v_withdrawn := dibs._withdraw_tickets(ids, at,
      queues => case when filter.queue is not null then dibs._queue_numbers(dibs._queue_number(filter.queue)) end);
  end if;
  v_dead := array(select d.id from dibs._lock_dead(ids, filter) as d where d.still_matches);
  update dibs.dead as d
  set queue_id = case when v_shards > 1 then dibs._shard_of_job(d.id, to_queue, v_shards) else to_queue end
  where d.id = any (v_dead);
  v_moved := array(select w.id from unnest(v_withdrawn) as w) || v_dead;
  update dibs.job as j
  set queue_id = case when v_shards > 1 then dibs._shard_of_job(j.id, to_queue, v_shards) else to_queue end
  where j.id = any (v_moved);
  v_tickets := array(
    select dibs._ticket_in_queue(w, j, q, at) from unnest(v_withdrawn) as w
    join dibs.job as j on j.id = w.id join dibs.queue as q on q.id = j.queue_id order by w.id);
  perform dibs._check_moved(coalesce(cardinality(v_withdrawn), 0), cardinality(v_tickets));
  perform dibs._return_tickets(v_tickets, at);
  return coalesce(cardinality(v_moved), 0);
end
$$;

comment on function dibs._move_jobs is
'Move those of the jobs that still wait or are dead, as the filter says, to another queue. Return how many.';

create or replace function dibs.move(
  filter jsonb, queue text, max integer default 1000, after uuid default null, continues bigint default null,
  dry_run boolean default false, out matched bigint, out done bigint, out next uuid, out operation bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_states constant text[] := '{scheduled,ready,blocked,failed,exhausted,expired,cancelled}'::text[];
  v_now timestamptz := dibs.now();
  v_queue integer;
  v_targets integer[];
  v_ids uuid[];
begin
  v_queue := dibs._queue_number(move.queue);
  v_targets := dibs._queue_numbers(v_queue);
  select s.ids, s.next into v_ids, move.next
  from dibs._begin_step('move', move.filter, v_states, move.max, move.after, move.continues, v_now) as s;
  -- Leave out jobs that are already in the queue or in one of its shards.
  v_ids := array(
    select k from unnest(v_ids) as k
    where not exists (select from dibs.job as j where j.id = k and j.queue_id = any (v_targets)) order by k);
  matched := cardinality(v_ids);
  done := 0;
  operation := move.continues;
  if move.dry_run or matched = 0 then
    return;
  end if;
  done := dibs._move_jobs(v_ids, dibs._read_filter('move', move.filter, v_states), v_queue, v_now);
  operation := dibs._audit('move', move.filter ->> 'queue', move.filter, done,
    jsonb_build_object('to', move.queue), move.continues);
end
$$;

comment on function dibs.move is
'Move jobs that wait or are dead to another queue, by filter: a step of up to `max`, with the same answer as `delete`.
They keep their priority, due time, TTL and attempts, and the dedup key of the queue they came from; the lease, retries
and limits are the new queue''s from then on. A bounded queue accepts them even if it is full.';
