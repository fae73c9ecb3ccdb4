-- Views for people: no payloads and no tokens. Each view is a security barrier: a function in the caller's condition
-- could reveal the rows that it is given, so the view's own condition comes first.

create or replace view dibs.jobs with (security_barrier) as
select j.id, coalesce(p.name, q.name) as queue, j.kind,
  case
    when r.id is not null and r.due_at > n.at then 'scheduled'
    when r.id is not null then 'ready'
    when b.id is not null then 'blocked'
    when l.id is not null then 'running'
    when d.id is not null then d.state
    else 'succeeded'
  end as state,
  coalesce(r.priority, b.priority, l.priority, d.priority, j.priority) as priority,
  dibs.id_time(j.id) as enqueued_at,
  coalesce(r.due_at, b.due_at, l.due_at, d.due_at, j.due_at) as due_at,
  nullif(coalesce(r.expire_at, b.expire_at, l.expire_at), 'infinity') as expire_at,
  -- The history has the attempts of a succeeded job. A job that snoozed for weeks has too many runs to count in a list.
  coalesce(r.charged, b.charged, l.charged, d.charged, (
    select case when count(*) < 1000 and bool_or(a.outcome is null)
      then count(*) filter (where a.outcome is null or a.outcome not in ('snoozed', 'released')) end
    from (
      select a.outcome from dibs.attempt as a
      where a.id = j.id order by a.run desc limit 1000) as a))::integer as attempts,
  coalesce(j.max_attempts, q.max_attempts) as max_attempts,
  coalesce(r.losses, b.losses, l.losses, d.losses) as losses,
  l.claimed_at, l.lease_until, l.worker, l.progress, l.cancel is not null as cancel_requested,
  d.ended_at, split_part(coalesce(d.reason, case when coalesce(r.run, b.run) > 0 then (
    select a.error from dibs.attempt as a where a.id = j.id and a.error is not null order by a.run desc limit 1) end),
    E'\n', 1) as reason,
  case when p.id is not null then q.shard when q.shards > 1 then 0 end as shard,
  j.group_name as "group"
from dibs.job as j
join dibs.queue as q on q.id = j.queue_id
left join dibs.queue as p on p.id = q.shard_of
cross join lateral (select dibs.now() as at) as n
left join dibs.ready as r on r.id = j.id
left join dibs.blocked as b on b.id = j.id
left join dibs.lease as l on l.id = j.id
left join dibs.dead as d on d.id = j.id
where (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true))
-- The security barrier keeps the order of a caller's query out of the plan. Callers order by this, newest first.
order by j.id desc;

comment on view dibs.jobs is
'Every job that is kept, newest first, with its state; the reason why a dead job died, or the last error of a job that
waits again; no payloads.';

create or replace view dibs.attempts with (security_barrier) as
select a.id, coalesce(p.name, q.name) as queue, j.kind, a.run, coalesce(a.outcome, 'succeeded') as outcome,
  a.claimed_at, a.ended_at, a.ended_at - a.claimed_at as duration, a.worker,
  split_part(a.error, E'\n', 1) as error, a.progress,
  case when a.run = 1 then a.claimed_at - j.due_at end as first_wait
from dibs.attempt as a
join dibs.queue as q on q.id = a.queue_id
left join dibs.queue as p on p.id = q.shard_of
left join dibs.job as j on j.id = a.id
where (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true));

comment on view dibs.attempts is
'Every ended run that is kept; no results, and only the first line of an error. first_wait is how long a job waited for
its first run.';

create or replace view dibs.running with (security_barrier) as
select l.id, coalesce(p.name, q.name) as queue, j.kind, l.worker, l.claimed_at, l.lease_until, l.charged as attempt,
  l.progress, l.cancel is not null as cancel_requested
from dibs.lease as l
join dibs.queue as q on q.id = l.queue_id
left join dibs.queue as p on p.id = q.shard_of
left join dibs.job as j on j.id = l.id
where (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true));

comment on view dibs.running is 'Every job that a worker or a client holds, its holder, and its progress.';

create or replace view dibs.queues with (security_barrier) as
select q.name, q.paused_at, q.created_at, p.*
from dibs.queue as q cross join lateral jsonb_populate_record(null::dibs.queue_policy, to_jsonb(q)) as p
where q.shard_of is null and (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true));

comment on view dibs.queues is 'Every queue and its policy.';

create or replace view dibs.workers with (security_barrier) as
select w.id, w.name, w.started_at, w.seen_at, w.facts, coalesce(l.running, 0) as running, w.kinds, w.cpu, w.memory,
  w.stop_asked_at
from dibs.worker as w
left join (select l.worker, count(*) as running from dibs.lease as l group by l.worker) as l on l.worker = w.id
-- A confined caller sees the workers that report queues of the caller's only.
where (select dibs.confined_to()) is null or w.facts -> 'queues' <> '[]' and w.facts -> 'queues' <@ (
  select jsonb_agg(q.name) from dibs.queue as q where q.id = any ((select dibs.confined_to())::integer[]));

comment on view dibs.workers is
'Every registered worker: how many jobs it holds, how many processors it keeps busy, how much memory it uses, and
since when it is asked to stop.';

create or replace view dibs.tasks with (security_barrier) as
select t.kind, t.queue, t.arguments, t.options, t.set_at from dibs.task as t
where (select dibs.confined_to()) is null or exists (
  select from dibs.queue as q where q.name = t.queue and q.id = any ((select dibs.confined_to())::integer[]));

comment on view dibs.tasks is 'Every task that a worker has registered.';
