-- Noisy groups have more than noisy_share of a queue's running jobs. A separate rotation, of the negated queue id,
-- serves them last. A group is noisy as long as it has a pointer there: until none of its jobs waits, or until it is
-- stopped.

create or replace function dibs._refresh_noisy_rotation(queue dibs.queue, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_now_us bigint := dibs._micros(clock_timestamp());
begin
  if (queue).noisy_share is null then
    -- No group is noisy any more: empty the rotation, also of pointers that lie ahead. Every look-back of a claim does
    -- this, because a claim that began before noisy_share was removed may still insert pointers.
    with gone as (
      delete from dibs.group_pointer as t where t.ctid = any (array(
        select o.ctid from dibs.group_pointer as o where o.queue_id = -(queue).id
        order by o.queue_id, o.look_at, o.n limit 1000 for update skip locked))
      returning t.*
    )
    insert into dibs.group_pointer (
      queue_id, group_key, look_at, priority, floor_at, floor_id, cost, ended_runs, next_id)
    select (queue).id, g.group_key, greatest(g.look_at, at), g.priority, g.floor_at, g.floor_id, g.cost, g.ended_runs,
      g.next_id
    from gone as g;
    return;
  end if;
  -- Mark groups that became noisy. Counting all running jobs is slow: each connection does it once per second.
  if abs(v_now_us - coalesce(dibs._recall('noisy', (queue).id)::bigint, 0)) < 1000000 then
    return;
  end if;
  perform dibs._remember('noisy', (queue).id, v_now_us::text);
  insert into dibs.group_pointer (queue_id, group_key, look_at)
  select -(queue).id, r.group_key, at
  from (
    select l.group_key, count(*) as jobs, sum(count(*)) over () as jobs_of_queue from dibs.lease as l
    where l.queue_id = (queue).id group by l.group_key
  ) as r
  where r.group_key is not null and r.jobs > 1 and r.jobs > r.jobs_of_queue * (queue).noisy_share
    and not exists (select from dibs.group_pointer as t where t.group_key = r.group_key and t.queue_id = -(queue).id);
end
$$;

comment on function dibs._refresh_noisy_rotation is
'In a queue with a noisy_share, insert a wakeup into the noisy rotation for each group that became noisy. In a queue
without one, move pointers from the noisy rotation back to the ordinary one, 1,000 at a time.';

create or replace function dibs._divert_noisy_groups(
  queue dibs.queue, candidates dibs.group_candidate[], at timestamptz) returns dibs.group_candidate[]
language plpgsql volatile
as $$
declare
  v_noisy uuid[] := array(
    select c.group_key from unnest(candidates) as c
    where exists (select from dibs.group_pointer as t where t.group_key = c.group_key and t.queue_id = -(queue).id));
begin
  if v_noisy = '{}' then
    return candidates;
  end if;
  with noisy as (
    select c.* from unnest(candidates) as c where c.group_key = any (v_noisy) and c.has_pointers
  )
  insert into dibs.group_pointer (queue_id, group_key, look_at, priority, floor_at, floor_id, cost, ended_runs, next_id)
  select -(queue).id, c.group_key, at, f.priority, f.due_at, f.id, f.cost, 0, null
  from noisy as c cross join lateral unnest(c.floors) as f
  union all
  -- A wakeup, if the pointers of the group had something to tell its gate, or none of them was to a ticket.
  select -(queue).id, c.group_key, at, null, null, null, 1, c.ended_runs, c.next_id
  from noisy as c
  where c.ended_runs > 0 or c.next_id is not null or c.floors is null;
  return array(select c from unnest(candidates) as c where c.group_key <> all (v_noisy));
end
$$;

comment on function dibs._divert_noisy_groups is
'Return the candidates that are not noisy. For each noisy one whose pointers this claim has deleted, insert pointers
with the same content into the noisy rotation. The rest are left to the claims that have locked their pointers.';
