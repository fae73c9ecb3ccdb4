-- Parts of undo: snapshots of jobs before a change, kept for an hour, and the way back.

create or replace function dibs._undo_period() returns interval
language sql immutable parallel safe
return interval '1 hour';

comment on function dibs._undo_period is 'The time in which an operation can be undone.';

create or replace function dibs._snapshot(ticket dibs.dead, expire_at timestamptz, state text, reason text)
returns dibs.undo_job
language plpgsql stable
as $$
declare
  v_snapshot dibs.undo_job;
begin
  v_snapshot.id := ticket.id;
  v_snapshot.at := dibs.now();
  v_snapshot.run := ticket.run;
  v_snapshot.charged := ticket.charged;
  v_snapshot.losses := ticket.losses;
  v_snapshot.due_at := ticket.due_at;
  v_snapshot.expire_at := expire_at;
  v_snapshot.ended_at := ticket.ended_at;
  v_snapshot.state := state;
  v_snapshot.reason := reason;
  return v_snapshot;
end
$$;

comment on function dibs._snapshot is
'Return a snapshot of a dead job for undo, without its operation, which _save_undo adds.';

create or replace function dibs._snapshot_dead(ids uuid[]) returns dibs.undo_job[]
language sql stable
return array(
  select dibs._snapshot(t.ticket, expire_at => null, state => (t.ticket).state, reason => (t.ticket).reason)
  from unnest(ids) as k (id)
  cross join lateral (select d as ticket from dibs.dead as d where d.id = k.id offset 0) as t);

comment on function dibs._snapshot_dead is 'Return snapshots of dead jobs as they are before a retry.';

create or replace function dibs._expiry_times(ids uuid[]) returns jsonb
language sql stable
return (
  select jsonb_object_agg(waiting.id, waiting.expire_at) from unnest(ids) as k (id)
  cross join lateral (
    select r.id, r.expire_at from dibs.ready as r where r.id = k.id
    union all
    select b.id, b.expire_at from dibs.blocked as b where b.id = k.id) as waiting);

comment on function dibs._expiry_times is 'When waiting jobs expire, by id, as JSON: a dead ticket has no expire_at.';

create or replace function dibs._snapshot_cancelled(ids uuid[], expiries jsonb) returns dibs.undo_job[]
language sql volatile
return array(
  select dibs._snapshot(t.ticket, state => 'cancelled', reason => null, expire_at => coalesce(
    (expiries ->> k.id::text)::timestamptz, dibs._expiry((t.ticket).due_at, coalesce(j.ttl, q.ttl), j.deadline)))
  from unnest(ids) as k (id)
  cross join lateral (select d as ticket from dibs.dead as d where d.id = k.id offset 0) as t
  left join lateral (select j.ttl, j.deadline from dibs.job as j where j.id = k.id offset 0) as j on true
  left join dibs.queue as q on q.id = (t.ticket).queue_id);

comment on function dibs._snapshot_cancelled is
'Return snapshots of cancelled jobs as they were before: when they expired from `expiries`, which _expiry_times returned
before the cancel, all other fields from their dead tickets, because a job may have run since `expiries` was read. A job
that did not wait at that time has no entry in `expiries`, and its TTL begins again. Undo recognizes the cancel by
`ended_at`.';

create or replace function dibs._save_undo(operation bigint, jobs dibs.undo_job[], changed uuid[]) returns void
language sql volatile
begin atomic
  insert into dibs.undo_job (operation, id, at, run, charged, losses, due_at, expire_at, ended_at, state, reason)
  select _save_undo.operation, u.id, u.at, u.run, u.charged, u.losses, u.due_at, u.expire_at, u.ended_at, u.state,
    u.reason
  from unnest(jobs) as u where u.id = any (changed)
  on conflict on constraint undo_job_pkey do nothing;
end;

comment on function dibs._save_undo is
'Insert the snapshots of the jobs that an operation has `changed`.';

create or replace function dibs._forget_undo() returns bigint
language plpgsql volatile
as $$
declare
  v_deleted bigint;
begin
  with gone as (
    delete from dibs.undo_job as u where u.ctid = any (array(
      select o.ctid from dibs.undo_job as o where o.at < dibs.now() - dibs._undo_period()
      order by o.at limit 10000 for update skip locked))
    returning 1)
  select count(*) into v_deleted from gone;
  return v_deleted;
end
$$;

comment on function dibs._forget_undo is
'Delete up to 10,000 snapshots of operations that can no longer be undone. Return how many.';

create or replace function dibs._undo_cancel(jobs dibs.undo_job[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_locked uuid[];
  v_tickets dibs.ready[];
begin
  -- Lock dedup keys before tickets, as every verb does that waits for both: an `edit` has the key and waits for the
  -- ticket.
  perform dibs._retake_dedup_keys(array(
    select d.id from unnest(jobs) as u
    join dibs.dead as d on d.id = u.id and d.state = 'cancelled' and d.ended_at = u.ended_at), at);
  v_locked := array(
    select d.id from unnest(jobs) as u
    cross join lateral (
      select d.id from dibs.dead as d where d.id = u.id and d.state = 'cancelled' and d.ended_at = u.ended_at
      for update skip locked) as d);
  v_tickets := array(
    -- A job whose dedup key another job has stays dead.
    select dibs._ticket(id => d.id, due_at => d.due_at, queue_id => d.queue_id, run => d.run,
      -- An edit may have moved the due time of the dead job.
      expire_at => dibs._postponed_expiry(d.id, u.expire_at, u.expire_at + greatest(d.due_at - u.due_at, interval '0')),
      charged => d.charged, losses => d.losses, priority => d.priority,
      own_lease => dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q, d.charged + 1), history => d.history,
      fingerprint => d.fingerprint, group_key => dibs._group_key(d.queue_id, j.group_name), cost => j.cost)
    from unnest(jobs) as u join dibs.dead as d on d.id = u.id and d.id = any (v_locked)
    join dibs.job as j on j.id = d.id join dibs.queue as q on q.id = d.queue_id
    left join dibs.fingerprint as f on f.hash = d.fingerprint
    where d.fingerprint is null or f.id = d.id or j.dedup_scope = 'window'
    order by d.id);
  delete from dibs.dead as d where d.id = any (array(select t.id from unnest(v_tickets) as t));
  perform dibs._return_tickets(v_tickets, at);
  return cardinality(v_tickets);
end
$$;

comment on function dibs._undo_cancel is
'Make cancelled jobs wait again as before, except a job that is no longer dead of this cancellation, or whose dedup key
another job has. Return how many.';

create or replace function dibs._undo_retry(jobs dibs.undo_job[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_undoable dibs.undo_job[];
  v_locked uuid[];
  v_withdrawn dibs.ready[];
  v_inserted bigint;
begin
  -- A job may have been cancelled and retried again without a run: only the last of its operations can be undone.
  v_undoable := array(
    select u from unnest(jobs) as u
    where not exists (select from dibs.undo_job as o where o.id = u.id and o.operation > u.operation));
  v_locked := array(
    select r.id from unnest(v_undoable) as u
    cross join lateral (
      select r.id from dibs.ready as r where r.id = u.id and r.run = u.run for update skip locked) as r)
    || array(
    select b.id from unnest(v_undoable) as u
    cross join lateral (
      select b.id from dibs.blocked as b where b.id = u.id and b.run = u.run for update skip locked) as b);
  v_withdrawn := dibs._withdraw_tickets(array(select k from unnest(v_locked) as k order by k), at);
  insert into dibs.dead (
    id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state, reason, fingerprint)
  select w.id, u.due_at, u.ended_at, w.queue_id, w.run, u.charged, u.losses, w.priority, w.history, u.state, u.reason,
    w.fingerprint
  from unnest(v_withdrawn) as w join unnest(v_undoable) as u on u.id = w.id;
  get diagnostics v_inserted = row_count;
  perform dibs._check_moved(coalesce(cardinality(v_withdrawn), 0), v_inserted);
  perform dibs._free_dedup_keys(array_agg(w.fingerprint), array_agg(w.id)) from unnest(v_withdrawn) as w;
  return coalesce(cardinality(v_withdrawn), 0);
end
$$;

comment on function dibs._undo_retry is
'Make retried jobs dead again, with the due time, state and reason they had before, except a job that has run, or was
cancelled or retried by another operation, since. Return how many.';
