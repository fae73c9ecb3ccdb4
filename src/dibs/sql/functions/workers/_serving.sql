-- Find the workers that would run a job, by what they report.

create or replace function dibs._live_workers(at timestamptz) returns setof dibs.worker
language sql stable
begin atomic
  -- A heartbeat comes every 10 seconds, so a worker may miss two.
  select w.* from dibs.worker as w where w.seen_at > at - interval '30 seconds';
end;

comment on function dibs._live_workers is 'The workers that were seen in the last 30 seconds.';

create or replace function dibs._workers_of_queue(queue_id integer, at timestamptz) returns setof dibs.worker
language sql stable
begin atomic
  select w.* from dibs._live_workers(at) as w
  where w.facts -> 'queues' ? (
    select coalesce(parent.name, q.name) from dibs.queue as q left join dibs.queue as parent on parent.id = q.shard_of
    where q.id = _workers_of_queue.queue_id);
end;

comment on function dibs._workers_of_queue is
'The live workers that report that they serve a queue, or the queue of this shard.';

create or replace function dibs._why_unserved(queue_id integer, queue text, kind text, at timestamptz) returns text
language sql stable
begin atomic
  select case
    when count(*) = 0 then format('no live worker says that it serves queue %L', queue)
    when not bool_or(coalesce(_why_unserved.kind = any (w.kinds), true))
    then format('no live worker of queue %L runs kind %L', queue, kind)
  end
  from dibs._workers_of_queue(queue_id, at) as w;
end;

comment on function dibs._why_unserved is
'A sentence that says why no live worker would take a job of this queue and kind, by what workers report; null if one
may.';

create or replace function dibs._why_parked(ticket dibs.blocked, queue text, at timestamptz) returns text
language sql stable
begin atomic
  select format('It is due, but a worker that claimed it does not run kind %L; %s. It is offered to all again at %s.',
    (ticket).kind,
    coalesce(dibs._why_unserved((ticket).queue_id, queue, (ticket).kind, at), 'it waits for one that does'),
    dibs._utc_text((ticket).again_at))
  where (ticket).kind is not null;
end;

comment on function dibs._why_parked is
'A sentence that says what a parked job waits for; null if the blocked ticket is not parked.';
