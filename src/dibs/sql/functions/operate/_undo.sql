-- What it takes to undo, noted before a change and kept for an hour.

create or replace function dibs._undo_period() returns interval
language sql immutable parallel safe
return interval '1 hour';

comment on function dibs._undo_period is 'How long an operation can be undone.';

create or replace function dibs._snapshot_dead(ids uuid[]) returns dibs.undo_job[]
language sql stable
return array(
  select row(0, d.id, dibs.now(), d.run, d.charged, d.losses, d.due_at, null, d.ended_at, d.state, d.reason)::dibs.undo_job
  from unnest(ids) as k (id)
  cross join lateral (select d.* from dibs.dead as d where d.id = k.id offset 0) as d);

comment on function dibs._snapshot_dead is 'What dead jobs are before they are brought back.';

create or replace function dibs._expiry_times(ids uuid[]) returns jsonb
language sql stable
return (
  select jsonb_object_agg(w.id, w.expire_at) from unnest(ids) as k (id)
  cross join lateral (
    select r.id, r.expire_at from dibs.ready as r where r.id = k.id
    union all
    select b.id, b.expire_at from dibs.blocked as b where b.id = k.id) as w);

comment on function dibs._expiry_times is 'When waiting jobs expire, by id: a dead ticket does not say it.';

create or replace function dibs._snapshot_cancelled(ids uuid[], expiries jsonb) returns dibs.undo_job[]
language sql volatile
return array(
  select row(0, d.id, dibs.now(), d.run, d.charged, d.losses, d.due_at, coalesce((expiries ->> d.id::text)::timestamptz,
      dibs._expiry(d.due_at, coalesce(j.ttl, q.ttl), j.deadline)), d.ended_at, 'cancelled', null)::dibs.undo_job
  from unnest(ids) as k (id)
  cross join lateral (select d.* from dibs.dead as d where d.id = k.id offset 0) as d
  left join lateral (select j.ttl, j.deadline from dibs.job as j where j.id = d.id offset 0) as j on true
  left join dibs.queue as q on q.id = d.queue_id);

comment on function dibs._snapshot_cancelled is
'What jobs were before they were cancelled, by their dead tickets. A job may have run between the moment it was chosen and the moment it was
cancelled, so what it was when it was chosen does not count.';

create or replace function dibs._save_undo(operation bigint, jobs dibs.undo_job[], changed uuid[]) returns void
language sql volatile
begin atomic
  insert into dibs.undo_job (operation, id, at, run, charged, losses, due_at, expire_at, ended_at, state, reason)
  select _save_undo.operation, u.id, u.at, u.run, u.charged, u.losses, u.due_at, u.expire_at,
    coalesce((select d.ended_at from dibs.dead as d where d.id = u.id), u.ended_at), u.state, u.reason
  from unnest(jobs) as u where u.id = any (changed)
  on conflict on constraint undo_job_pkey do nothing;
end;

comment on function dibs._save_undo is 'Keep what jobs were before an operation, those of them that it changed; of those that are dead since, when they ended.';

create or replace function dibs._forget_undo() returns bigint
language plpgsql volatile
as $$
declare
  v_gone bigint;
begin
  with gone as (
    delete from dibs.undo_job as u where u.ctid = any (array(
      select o.ctid from dibs.undo_job as o where o.at < dibs.now() - dibs._undo_period() order by o.at limit 10000 for update skip locked))
    returning 1)
  select count(*) into v_gone from gone;
  return v_gone;
end
$$;

comment on function dibs._forget_undo is 'Delete what was kept for operations that can no longer be undone.';

create or replace function dibs._undo_cancel(jobs dibs.undo_job[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_ids uuid[];
  v_tickets dibs.ready[];
begin
  -- Keys before tickets, as in every verb: an edit that holds a key may wait for the ticket.
  perform dibs._retake_dedup_keys(array(
    select d.id from unnest(jobs) as u
    join dibs.dead as d on d.id = u.id and d.state = 'cancelled' and d.ended_at = u.ended_at), at);
  v_ids := array(
    select d.id from unnest(jobs) as u
    cross join lateral (
      select d.id from dibs.dead as d where d.id = u.id and d.state = 'cancelled' and d.ended_at = u.ended_at
      for update skip locked) as d);
  v_tickets := array(
    select dibs._ticket(id => d.id, due_at => d.due_at, expire_at => u.expire_at, queue_id => d.queue_id, run => d.run,
      charged => d.charged, losses => d.losses, priority => d.priority,
      own_lease => dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q, d.charged + 1), history => d.history,
      fingerprint => d.fingerprint, group_key => dibs._group_key(d.queue_id, j.group_name), cost => j.cost)
    from unnest(jobs) as u join dibs.dead as d on d.id = u.id and d.id = any (v_ids)
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
'Let cancelled jobs wait as before, unless they have come back since, or another job has their dedup key. Returns how many do.';

create or replace function dibs._undo_retry(jobs dibs.undo_job[], at timestamptz) returns bigint
language plpgsql volatile
as $$
declare
  v_ids uuid[];
  v_gone dibs.ready[];
  v_put bigint;
begin
  v_ids := array(
    select r.id from unnest(jobs) as u
    cross join lateral (
      select r.id from dibs.ready as r where r.id = u.id and r.run = u.run for update skip locked) as r)
    || array(
    select b.id from unnest(jobs) as u
    cross join lateral (
      select b.id from dibs.blocked as b where b.id = u.id and b.run = u.run for update skip locked) as b);
  v_gone := dibs._withdraw_tickets(array(select k from unnest(v_ids) as k order by k), at);
  insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state, reason, fingerprint)
  select g.id, u.due_at, u.ended_at, g.queue_id, g.run, u.charged, u.losses, g.priority, g.history, u.state, u.reason, g.fingerprint
  from unnest(v_gone) as g join unnest(jobs) as u on u.id = g.id;
  get diagnostics v_put = row_count;
  perform dibs._check_moved(coalesce(cardinality(v_gone), 0), v_put);
  perform dibs._free_dedup_keys(array_agg(g.fingerprint), array_agg(g.id)) from unnest(v_gone) as g;
  return coalesce(cardinality(v_gone), 0);
end
$$;

comment on function dibs._undo_retry is 'Let jobs that were brought back be dead as before, unless one has run since. Returns how many are.';
