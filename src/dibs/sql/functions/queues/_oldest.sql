-- Find the oldest ready job.

create or replace function dibs._find_oldest_ready(
  queue integer, at timestamptz, out ready timestamptz, out untried timestamptz, out is_estimate boolean)
language plpgsql stable
as $$
declare
  c_max constant integer := 1000;
  v_ids constant integer[] := dibs._queue_numbers(queue);
  v_grouped bigint;
  v_grouped_ready timestamptz;
  v_grouped_untried timestamptz;
begin
  -- Jobs without a group, one index scan for each priority.
  select min(head.due_at), min(coalesce(first_untried.due_at, beyond.due_at)),
    coalesce(bool_or(first_untried.due_at is null and beyond.due_at is not null), false)
  into ready, untried, is_estimate
  from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
  cross join lateral (
    select r.due_at from dibs.ready as r
    where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
    order by r.due_at, r.id limit 1) as head
  left join lateral (
    select r.due_at from (
      select r.due_at, r.run from dibs.ready as r
      where r.queue_id = q.id and r.priority = p.priority and r.group_key is null and r.due_at <= at
      order by r.due_at, r.id limit c_max) as r
    where r.run = 0 limit 1) as first_untried on true
  -- If all c_max have run before, an untried job is due no earlier than the next one.
  left join lateral (
    select r.due_at from dibs.ready as r
    where first_untried.due_at is null and r.queue_id = q.id and r.priority = p.priority and r.group_key is null
      and r.due_at <= at
    order by r.due_at, r.id offset c_max limit 1) as beyond on true
  where q.id = any (v_ids);
  select count(*), min(r.due_at) filter (where r.due_at <= at),
    min(r.due_at) filter (where r.due_at <= at and r.run = 0)
  into v_grouped, v_grouped_ready, v_grouped_untried
  from (
    select r.due_at, r.run from dibs.ready as r where r.queue_id = any (v_ids) and r.group_key is not null
    limit c_max + 1) as r;
  if v_grouped > c_max then
    -- Too many to read. The oldest pointer says when the oldest job of any group was due, or earlier.
    v_grouped_ready := least(v_grouped_ready, (
      select min(p.look_at) from unnest(v_ids) as shard (id) cross join lateral (
        select p.look_at from dibs.group_pointer as p
        where p.queue_id = shard.id and p.look_at <= at order by p.queue_id, p.look_at limit 1) as p));
    is_estimate := true;
  end if;
  ready := least(ready, v_grouped_ready);
  untried := least(untried, v_grouped_untried);
end
$$;

comment on function dibs._find_oldest_ready is
'The due time of the oldest ready job of a queue, and of the oldest that has never run; null if there is none.
`is_estimate` is true, and the times are approximate, if more than 1,000 jobs of a priority, or of all groups, would
have to be read.';
