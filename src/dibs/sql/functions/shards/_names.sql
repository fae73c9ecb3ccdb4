-- Shards are queues with a number behind their name.

create or replace function dibs._queue_numbers(id integer) returns integer[]
language plpgsql stable parallel safe
set enable_seqscan = off
set enable_sort = on
set jit = off
as $$
begin
  -- Looks at all queues call this for each one, so it must not read all of them; without a sort it would.
  return _queue_numbers.id || array(select q.id from dibs.queue as q where q.shard_of = _queue_numbers.id order by q.id);
end
$$;

comment on function dibs._queue_numbers is 'The number of a queue, and those of its shards.';

create or replace function dibs._shown_queue(id integer) returns integer
language sql stable parallel safe
return coalesce((select q.shard_of from dibs.queue as q where q.id = _shown_queue.id), id);

comment on function dibs._shown_queue is 'The queue that a shard belongs to; any other queue is itself.';
