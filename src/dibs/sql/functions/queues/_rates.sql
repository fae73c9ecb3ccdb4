-- How fast a queue fills and empties: by what happened last, as far as a short look reaches.

create or replace function dibs._per_second(jobs numeric, since timestamptz, at timestamptz) returns double precision
language sql immutable parallel safe
return coalesce(jobs, 0) / greatest(extract(epoch from at - since), 0.001);

comment on function dibs._per_second is 'So many since then, as a number per second.';

create or replace function dibs._arrivals(since timestamptz, at timestamptz)
returns table (queue_id integer, per_second double precision)
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  -- Ids are times. When the look ends before the span does, the rate is that of the time it saw.
  return query
  with look as materialized (
    select j.id, j.queue_id from dibs.job as j where j.id >= dibs._id_floor(since) order by j.id desc
    limit dibs._count_bound()
  )
  select l.queue_id, dibs._per_second(count(*), s.since, at)
  from look as l
  cross join (
    select case when count(*) = dibs._count_bound() then dibs.id_time(min(l.id::text)::uuid) else _arrivals.since end as since
    from look as l) as s
  group by l.queue_id, s.since;
end
$$;

comment on function dibs._arrivals is
'How many jobs per second were enqueued into each queue, or shard, by the newest 10,000 of all at most.';

create or replace function dibs._arriving(queues integer[], since timestamptz, at timestamptz) returns double precision
language sql stable
begin atomic
  select coalesce(sum(a.per_second), 0) from dibs._arrivals(_arriving.since, _arriving.at) as a where a.queue_id = any (queues);
end;

comment on function dibs._arriving is 'How many jobs per second were enqueued into some queues, by the newest 10,000 of all at most.';

create or replace function dibs._leaving(queue integer, since timestamptz, at timestamptz) returns double precision
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
declare
  v_ids constant integer[] := dibs._queue_numbers(queue);
  v_counted numeric;
  v_new numeric;
  v_dead double precision;
begin
  -- What succeeded is in the statistics, or has come since. A minute that began earlier counts in part.
  select sum(s.succeeded * least(extract(epoch from s.at + interval '1 minute' - _leaving.since) / 60, 1)) into v_counted
  from dibs.stat as s where s.queue_id = queue and s.grain = 'minute' and s.at > _leaving.since - interval '1 minute' and s.at <= _leaving.at;
  select count(*) into v_new from (
    select from dibs.attempt as a cross join dibs.stat_mark as m
    where a.xact >= m.next and a.queue_id = any (v_ids) and a.outcome = 'succeeded' and a.ended_at >= _leaving.since
    limit 10 * dibs._count_bound()) as a;
  select dibs._per_second(count(*), case when count(*) = dibs._count_bound() then min(d.ended_at) else _leaving.since end, _leaving.at) into v_dead
  from (
    select d.ended_at from dibs.dead as d where d.queue_id = any (v_ids) and d.ended_at >= _leaving.since order by d.ended_at desc
    limit dibs._count_bound()) as d;
  return dibs._per_second(coalesce(v_counted, 0) + v_new, _leaving.since, _leaving.at) + v_dead;
end
$$;

comment on function dibs._leaving is 'How many jobs of a queue per second succeeded or died.';
