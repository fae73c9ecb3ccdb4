-- Queues that no worker serves, kinds that no worker runs, backlogs that grow, and lost workers.

create or replace function dibs._find_unserved_queues(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'no-worker', 'error',
    format('no live worker says that it serves queue %s, whose oldest job has been due for %s', q.name,
      dibs._duration_text(at - o.ready)),
    'Its jobs wait until they expire.',
    format('dibs worker MODULE:APP --queue %s; dibs workers shows who is alive', q.name), q.name
  from dibs.queue as q cross join lateral dibs._find_oldest_ready(q.id, at) as o
  where q.shard_of is null and q.paused_at is null and o.ready < at - interval '1 minute'
    and not exists (select from dibs._workers_of_queue(q.id, at))
  order by q.name;
end;

comment on function dibs._find_unserved_queues is
'Find queues without a live worker whose oldest job has been due for a minute.';

create or replace function dibs._find_unknown_kinds(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'unknown-kind', 'error',
    format('no live worker of queue %L runs kind %s, and such jobs are parked there', q.name,
      string_agg(distinct quote_literal(p.kind), ' or ')),
    'They wait until they expire. The workers run older code, or the task was renamed.',
    'deploy workers that know the task, or dibs move the jobs to a queue whose workers do; dibs workers tasks shows who'
      ' knows what',
    q.name
  from dibs.parked_kind as p join dibs.queue as q on q.id = dibs._shown_queue(p.queue_id)
  where dibs._why_unserved(q.id, q.name, p.kind, at) is not null
    and exists (select from dibs.blocked as b where b.queue_id = p.queue_id and b.kind = p.kind)
  group by q.name
  order by q.name;
end;

comment on function dibs._find_unknown_kinds is 'Find queues with parked jobs of kinds that no live worker runs.';

create or replace function dibs._find_backlogs(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  -- Only queues with arrivals can grow.
  with late as materialized (
    select q.id, q.name, a.per_second, o.ready
    from (
      select dibs._shown_queue(a.queue_id) as queue_id, sum(a.per_second) as per_second
      from dibs._enqueue_rates(at - interval '10 minutes', at) as a group by 1
    ) as a
    join dibs.queue as q on q.id = a.queue_id and q.paused_at is null
    cross join lateral dibs._find_oldest_ready(q.id, at) as o
    where o.ready < at - interval '5 minutes'
  )
  select 'backlog', 'warning',
    format('queue %s grows: %s jobs come and %s go per second, and the oldest has been due for %s', l.name,
      round(l.per_second::numeric, 1), round(d.per_second::numeric, 1), dibs._duration_text(at - l.ready)),
    'Jobs start ever later, and expire in the end.',
    format('add workers, or --concurrency; bound what may wait: dibs queues set %s --max-depth N', l.name), l.name
  from late as l
  join dibs._end_rates(array(select l.id from late as l), at - interval '10 minutes', at) as d on d.queue_id = l.id
  where l.per_second > d.per_second
  order by l.name;
end;

comment on function dibs._find_backlogs is
'Find queues with more arrivals than departures whose oldest job has been due for 5 minutes.';

create or replace function dibs._find_dead_jobs(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'dead-jobs', 'warning',
    format('%s of queue %s died in the last %s, and %s succeeded',
      case d.jobs when 1 then 'a job' else d.jobs || ' jobs' end, q.name,
      case when d.since > at - interval '1 hour' then dibs._duration_text(at - d.since) else 'hour' end, s.jobs),
    'They do not run again by themselves.',
    format('see why with dibs failures; when that is cured: dibs retry --queue %s', q.name), q.name
  from dibs.queue as q
  cross join lateral (
    -- Look at an hour, or at the time since the first of the newest 10,000 jobs that ended.
    select count(*) filter (where d.state <> 'cancelled') as jobs,
      case when count(*) = 10000 then min(d.ended_at) else at - interval '1 hour' end as since
    from (
      select d.state, d.ended_at from dibs.dead as d
      where d.queue_id = any (dibs._queue_numbers(q.id)) and d.ended_at > at - interval '1 hour'
      order by d.ended_at desc limit 10000) as d) as d
  cross join lateral (
    select coalesce(sum(s.succeeded), 0) as jobs from dibs.stat as s
    where d.jobs > 0 and s.queue_id = q.id and s.grain = 'minute' and s.at >= date_trunc('minute', d.since)) as s
  where q.shard_of is null and d.jobs > 0.01 * s.jobs and d.jobs > 0
  order by d.jobs desc, q.name limit 20;
end;

comment on function dibs._find_dead_jobs is
'Find queues in which, in the last hour, more than one job died for each hundred that succeeded.';

create or replace function dibs._find_lost_workers(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'lost-worker', 'warning',
    format('worker %s (%s) has not been seen for %s', w.id, w.name, dibs._duration_text(at - w.seen_at)),
    'It died, hangs or has lost its database. Others take its jobs over when their leases run out.',
    'look at its log, and start it again; a worker that was told to stop is not reported', w.id::text
  from dibs.worker as w where w.seen_at < at - interval '1 minute' and w.seen_at > at - interval '1 hour'
  order by w.seen_at desc limit 20;
end;

comment on function dibs._find_lost_workers is 'Find workers that were lost in the last hour.';
