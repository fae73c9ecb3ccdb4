-- How fast a queue fills and empties: by what happened last, as far as a short look reaches.

create or replace function dibs._per_second(jobs numeric, since timestamptz, at timestamptz) returns double precision
language sql immutable parallel safe
return coalesce(jobs, 0) / greatest(extract(epoch from at - since), 0.001);

comment on function dibs._per_second is 'So many since then, as a number per second.';

create or replace function dibs._arriving(queues integer[], since timestamptz, at timestamptz) returns double precision
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
begin
  -- Ids are times. When the look ends before the span does, the rate is that of the time it saw.
  return (
    select dibs._per_second(count(*) filter (where j.queue_id = any (queues)),
      case when count(*) = dibs._count_bound() then dibs.id_time(min(j.id::text)::uuid) else since end, at)
    from (
      select j.id, j.queue_id from dibs.job as j where j.id >= dibs._id_floor(since) order by j.id desc
      limit dibs._count_bound()) as j);
end
$$;

comment on function dibs._arriving is 'How many jobs per second were enqueued, by the newest 10,000 of all queues at most.';

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
