-- The shards of a queue, and the queue of a shard.

create or replace function dibs._queue_numbers(id integer) returns integer[]
language plpgsql stable parallel safe
set enable_seqscan = off
set enable_sort = on
set jit = off
as $$
begin
  -- Called once for each queue, so it must use the index on shard_of. With enable_sort off, the planner would walk the
  -- whole primary key instead, to get the order.
  return _queue_numbers.id
    || array(select q.id from dibs.queue as q where q.shard_of = _queue_numbers.id order by q.id);
end
$$;

comment on function dibs._queue_numbers is 'The ids of a queue and of its shards.';

create or replace function dibs._shown_queue(id integer) returns integer
language sql stable parallel safe
return coalesce((select q.shard_of from dibs.queue as q where q.id = _shown_queue.id), id);

comment on function dibs._shown_queue is
'The id of the queue that a shard belongs to; for any other queue, its own id.';
