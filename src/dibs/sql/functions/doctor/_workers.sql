-- Queues that nobody serves, kinds that nobody runs, backlogs that grow.

create or replace function dibs._find_unserved(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'no-worker', 'error',
    format('no live worker says that it serves queue %s, whose oldest job has been due for %s', q.name, dibs._span(at - o.ready)),
    'Its jobs wait until they expire.', format('dibs worker MODULE:APP --queue %s; dibs workers shows who is alive', q.name)
  from dibs.queue as q cross join lateral dibs._oldest(q.id, at) as o
  where q.shard_of is null and q.paused_at is null and o.ready < at - interval '1 minute'
    and not exists (select from dibs._workers_of(q.id, at))
  order by q.name;
end;

comment on function dibs._find_unserved is 'Queues with jobs that have been due for a minute, and no worker.';

create or replace function dibs._find_unknown_kinds(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'unknown-kind', 'error', format('%s, and jobs of it wait there', dibs._unserved(q.id, q.name, p.kind, at)),
    'They wait until they expire. The workers run older code, or the task was renamed.',
    'deploy workers that know the task, or dibs move the jobs to a queue whose workers do; dibs tasks shows who knows what'
  from dibs.parked_kind as p join dibs.queue as q on q.id = p.queue_id
  where dibs._unserved(q.id, q.name, p.kind, at) is not null
    and exists (select from dibs.blocked as b where b.queue_id = p.queue_id and b.kind = p.kind)
  order by q.name, p.kind;
end;

comment on function dibs._find_unknown_kinds is 'Kinds of parked jobs that no live worker runs.';

create or replace function dibs._find_backlogs(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'backlog', 'warning',
    format('queue %s grows: %s jobs come and %s go per second, and the oldest has been due for %s', q.name, round(r.arriving::numeric, 1),
      round(r.leaving::numeric, 1), dibs._span(at - o.ready)),
    'Jobs start ever later, and expire in the end.',
    format('add workers, or --concurrency; bound what may wait: dibs queues set %s --max-depth N', q.name)
  from (
    -- A queue into which nothing comes does not grow.
    select dibs._shown_queue(a.queue_id) as queue_id, sum(a.per_second) as arriving
    from dibs._arrivals(at - interval '10 minutes', at) as a group by 1
  ) as a
  join dibs.queue as q on q.id = a.queue_id and q.paused_at is null
  cross join lateral dibs._oldest(q.id, at) as o
  cross join lateral (
    select a.arriving, case when o.ready < at - interval '5 minutes' then dibs._leaving(q.id, at - interval '10 minutes', at) end as leaving
  ) as r
  where r.arriving > r.leaving
  order by q.name;
end;

comment on function dibs._find_backlogs is 'Queues into which more comes than goes out, with jobs that have been due for 5 minutes.';
