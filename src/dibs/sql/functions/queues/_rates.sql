-- The rates at which a queue fills and empties, by a bounded look at the latest jobs.

create or replace function dibs._per_second(jobs numeric, since timestamptz, at timestamptz) returns double precision
language sql immutable parallel safe
return coalesce(jobs, 0) / greatest(extract(epoch from at - since), 0.001);

comment on function dibs._per_second is 'The rate of so many jobs in the time from `since` to `at`, per second.';

create or replace function dibs._enqueue_rates(since timestamptz, at timestamptz)
returns table (queue_id integer, per_second double precision)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_from constant uuid := dibs._id_floor(since);
  -- Ids contain their time. If more jobs than the bound were enqueued since, the last of those that are counted.
  v_last constant uuid := (
    select j.id from dibs.job as j where j.id >= v_from order by j.id desc offset dibs._count_bound() - 1 limit 1);
begin
  return query
  select j.queue_id, dibs._per_second(count(*), coalesce(dibs.id_time(v_last), since), at)
  from dibs.job as j where j.id >= coalesce(v_last, v_from) group by j.queue_id;
end
$$;

comment on function dibs._enqueue_rates is
'The number of jobs per second that were enqueued into each queue or shard since a time. Counts only the newest 10,000
jobs of the install: if those are younger, the rate is that of the time they span.';

create or replace function dibs._death_rate(queue integer, since timestamptz, at timestamptz) returns double precision
language plpgsql stable
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
begin
  return (
    select dibs._per_second(count(*),
      case when count(*) = dibs._count_bound() then min(d.ended_at) else _death_rate.since end, _death_rate.at)
    from (
      select d.ended_at from dibs.dead as d where d.queue_id = any (v_ids) and d.ended_at >= _death_rate.since
      order by d.ended_at desc limit dibs._count_bound()) as d);
end
$$;

comment on function dibs._death_rate is
'The number of jobs of a queue that died per second since a time. Counts only the last 10,000: if those are younger, the
rate is that of the time they span.';

create or replace function dibs._end_rates(queues integer[], since timestamptz, at timestamptz)
returns table (queue_id integer, per_second double precision)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return query
  -- A success is in the statistics, or among the runs that are not counted yet. Those are read once for all queues.
  with fresh as materialized (
    select coalesce(q.shard_of, q.id) as queue_id, count(*) as jobs
    from (
      select a.queue_id from dibs.attempt as a cross join dibs.stat_mark as m
      where a.xact >= m.next and a.outcome is null and a.ended_at >= _end_rates.since
      limit 10 * dibs._count_bound()) as a
    join dibs.queue as q on q.id = a.queue_id group by 1
  ), counted as materialized (
    -- The minute in which the time begins counts in part.
    select s.queue_id,
      sum(s.succeeded * least(extract(epoch from s.at + interval '1 minute' - _end_rates.since) / 60, 1)) as jobs
    from dibs.stat as s
    where s.grain = 'minute' and s.at > _end_rates.since - interval '1 minute' and s.at <= _end_rates.at
    group by 1
  )
  select k.id, dibs._per_second(coalesce(c.jobs, 0) + coalesce(f.jobs, 0), _end_rates.since, _end_rates.at)
    + dibs._death_rate(k.id, _end_rates.since, _end_rates.at)
  from unnest(queues) as k (id)
  left join counted as c on c.queue_id = k.id
  left join fresh as f on f.queue_id = k.id;
end
$$;

comment on function dibs._end_rates is
'The number of jobs of each queue that succeeded or died per second since a time, by the statistics and the runs that
are not in them yet.';
