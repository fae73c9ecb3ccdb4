-- How fast a queue fills and empties: by what happened last, as far as a short look reaches.

create or replace function dibs._per_second(jobs numeric, since timestamptz, at timestamptz) returns double precision
language sql immutable parallel safe
return coalesce(jobs, 0) / greatest(extract(epoch from at - since), 0.001);

comment on function dibs._per_second is 'So many since then, as a number per second.';

create or replace function dibs._enqueue_rates(since timestamptz, at timestamptz)
returns table (queue_id integer, per_second double precision)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_from constant uuid := dibs._id_floor(since);
  -- Ids are times. When the look ends before the span does, the rate is that of the time it saw.
  v_last constant uuid := (
    select j.id from dibs.job as j where j.id >= v_from order by j.id desc offset dibs._count_bound() - 1 limit 1);
begin
  return query
  select j.queue_id, dibs._per_second(count(*), coalesce(dibs.id_time(v_last), since), at)
  from dibs.job as j where j.id >= coalesce(v_last, v_from) group by j.queue_id;
end
$$;

comment on function dibs._enqueue_rates is
'How many jobs per second were enqueued into each queue, or shard, by the newest 10,000 of all at most.';

create or replace function dibs._arriving(queues integer[], since timestamptz, at timestamptz) returns double precision
language sql stable
begin atomic
  select coalesce(sum(a.per_second), 0) from dibs._enqueue_rates(_arriving.since, _arriving.at) as a where a.queue_id = any (queues);
end;

comment on function dibs._arriving is 'How many jobs per second were enqueued into some queues, by the newest 10,000 of all at most.';

create or replace function dibs._death_rate(queue integer, since timestamptz, at timestamptz) returns double precision
language plpgsql stable
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
begin
  return (
    select dibs._per_second(count(*), case when count(*) = dibs._count_bound() then min(d.ended_at) else _death_rate.since end, _death_rate.at)
    from (
      select d.ended_at from dibs.dead as d where d.queue_id = any (v_ids) and d.ended_at >= _death_rate.since
      order by d.ended_at desc limit dibs._count_bound()) as d);
end
$$;

comment on function dibs._death_rate is 'How many jobs of a queue per second died, by the last 10,000 at most.';

create or replace function dibs._end_rates(queues integer[], since timestamptz, at timestamptz)
returns table (queue_id integer, per_second double precision)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return query
  -- What succeeded is in the statistics, or has come since: that is looked for once, however many queues there are.
  with fresh as materialized (
    select coalesce(q.shard_of, q.id) as queue_id, count(*) as jobs
    from (
      select a.queue_id from dibs.attempt as a cross join dibs.stat_mark as m
      where a.xact >= m.next and a.outcome is null and a.ended_at >= _end_rates.since
      limit 10 * dibs._count_bound()) as a
    join dibs.queue as q on q.id = a.queue_id group by 1
  ), counted as materialized (
    -- A minute that began earlier counts in part.
    select s.queue_id, sum(s.succeeded * least(extract(epoch from s.at + interval '1 minute' - _end_rates.since) / 60, 1)) as jobs
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

comment on function dibs._end_rates is 'How many jobs of each queue per second succeeded or died.';
