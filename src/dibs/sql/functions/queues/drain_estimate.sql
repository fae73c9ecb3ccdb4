-- drain_estimate: when the backlog of a queue will be gone at its recent rates.

create or replace function dibs.drain_estimate(queue text, span interval default interval '5 minutes')
returns table (waiting bigint, arriving double precision, leaving double precision, drained_in interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id constant integer := dibs._queue_number(drain_estimate.queue);
  v_queue dibs.queue;
  v_now timestamptz := dibs.now();
  v_from timestamptz;
begin
  select q.* into v_queue from dibs.queue as q where q.id = v_id;
  if span is null or span not between interval '1 second' and interval '1 day' then
    raise exception using errcode = 'DI010',
      message = format('drain_estimate looks at 1 second to 1 day, not %s', span);
  end if;
  v_from := greatest(v_now - span, v_queue.created_at);
  waiting := (
    select sum(c.jobs) from dibs._count_states(array[v_queue.id], v_now, '{ready,blocked}') as c
    where c.state in ('ready', 'blocked'));
  arriving := (
    select coalesce(sum(r.per_second), 0) from dibs._enqueue_rates(v_from, v_now) as r
    where r.queue_id = any (dibs._queue_numbers(v_queue.id)));
  leaving := (select d.per_second from dibs._end_rates(array[v_queue.id], v_from, v_now) as d);
  drained_in := case when waiting = 0 then interval '0'
    when leaving > arriving then least(waiting / (leaving - arriving), 315360000) * interval '1 second' end;
  return next;
end
$$;

comment on function dibs.drain_estimate is
'When the backlog of a queue will be gone (`drained_in`; null if it does not shrink): from the number of jobs that are
due, and the numbers that were enqueued and ended per second in the last `span`. Ends are counted from the attempt
history, so a queue whose history is not `all` shows too few. The call costs the same however many jobs there are: large
numbers are estimates, as in `depth`, and if the newest 10,000 jobs are younger than `span`, their rate is that of the
time they span.';
