-- drain_estimate: when a queue's backlog will be gone, if all goes on as it did recently.

create or replace function dibs.drain_estimate(queue text, span interval default interval '5 minutes')
returns table (waiting bigint, arriving double precision, leaving double precision, drained_in interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue dibs.queue;
  v_ids integer[];
  v_now timestamptz := dibs.now();
  v_from timestamptz;
  v_seconds double precision;
  v_head uuid;
begin
  select q.* into v_queue from dibs.queue as q where q.id = dibs._queue_number(drain_estimate.queue);
  v_ids := dibs._queue_numbers(v_queue.id);
  if span is null or span not between interval '1 second' and interval '1 day' then
    raise exception using errcode = 'DI010',
      message = format('drain_estimate looks at 1 second to 1 day, not %s', span);
  end if;
  v_from := greatest(v_now - span, v_queue.created_at);
  v_seconds := greatest(extract(epoch from v_now - v_from), 0.001);
  select count(*), (array_agg(r.id order by r.id))[1] into waiting, v_head
  from dibs.ready as r where r.queue_id = any (v_ids) and r.due_at <= v_now;
  waiting := waiting + (select count(*) from dibs.blocked as b where b.queue_id = any (v_ids));
  arriving := (
    select count(*) from dibs.job as j
    where j.queue_id = any (v_ids) and j.id >= dibs._id_floor(v_from)) / v_seconds;
  -- Ids are times: what has just ended was enqueued about when the oldest that waits was, or later. So older days are
  -- not read.
  leaving := (
    (select count(*) from dibs.attempt as a
     where a.queue_id = any (v_ids) and a.outcome = 'succeeded' and a.ended_at >= v_from
       and a.id >= dibs._id_floor(least(v_now, dibs.id_time(v_head)) - span - interval '1 day'))
    + (select count(*) from dibs.dead as d where d.queue_id = any (v_ids) and d.ended_at >= v_from)) / v_seconds;
  drained_in := case when waiting = 0 then interval '0'
    when leaving > arriving then least(waiting / (leaving - arriving), 315360000) * interval '1 second' end;
  return next;
end
$$;

comment on function dibs.drain_estimate is
'How many jobs of a queue are due, how many per second were enqueued and ended in the last `span`, and when the backlog
will be gone if that goes on; null when it does not shrink. Counts what the attempt history has kept of it, so a queue
whose history is not `all` shows too few ends. It reads a day or more of history: for people, not for each request.';
