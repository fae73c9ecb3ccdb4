-- Noisy groups have more than noisy_share of a queue's running jobs. A separate rotation serves them last.

create or replace function dibs._mark_noisy_groups(queue dibs.queue, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_now_us bigint := dibs._micros(clock_timestamp());
begin
  -- It counts all running jobs, so each connection does it once a second.
  if abs(v_now_us - coalesce(dibs._recall('noisy', (queue).id)::bigint, 0)) < 1000000 then
    return;
  end if;
  perform dibs._remember('noisy', (queue).id, v_now_us::text);
  insert into dibs.group_pointer (queue_id, group_key, look_at)
  select -(queue).id, r.group_key, at
  from (
    select l.group_key, count(*) as jobs, sum(count(*)) over () as total from dibs.lease as l
    where l.queue_id = (queue).id group by l.group_key
  ) as r
  where r.group_key is not null and r.jobs > 1 and r.jobs > r.total * (queue).noisy_share
    and not exists (select from dibs.group_pointer as t where t.group_key = r.group_key and t.queue_id = -(queue).id);
end
$$;

comment on function dibs._mark_noisy_groups is
'Give each group that became noisy a pointer in the noisy rotation. It stays noisy until it has no pointer there, so
until no job is left.';

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
  insert into dibs.group_pointer (queue_id, group_key, look_at, priority, floor_at, floor_id, cost, ended_runs, next_id)
  select -(queue).id, c.group_key, at, f.priority, f.due_at, f.id, f.cost, 0, null
  from unnest(candidates) as c cross join lateral unnest(c.floors) as f
  where c.group_key = any (v_noisy) and c.is_ours
  union all
  select -(queue).id, c.group_key, at, null, null, null, 1, c.ended_runs, c.next_id
  from unnest(candidates) as c
  where c.group_key = any (v_noisy) and c.is_ours
    and (c.ended_runs > 0 or c.next_id is not null or c.floors is null);
  return array(select c from unnest(candidates) as c where c.group_key <> all (v_noisy));
end
$$;

comment on function dibs._divert_noisy_groups is
'Move the pointers of the noisy groups among the candidates to the noisy rotation, and return the other candidates.';

create or replace function dibs._unmark_noisy_groups(queue dibs.queue, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- Called now and then: a claim that began before noisy_share was removed may still divert a group.
  with gone as (
    delete from dibs.group_pointer as t where t.ctid = any (array(
      select o.ctid from dibs.group_pointer as o where o.queue_id = -(queue).id
      order by o.queue_id, o.look_at, o.n limit 1000 for update skip locked))
    returning t.*
  )
  insert into dibs.group_pointer (queue_id, group_key, look_at, priority, floor_at, floor_id, cost, ended_runs, next_id)
  select (queue).id, g.group_key, greatest(g.look_at, at), g.priority, g.floor_at, g.floor_id, g.cost, g.ended_runs,
    g.next_id
  from gone as g;
end
$$;

comment on function dibs._unmark_noisy_groups is
'Move pointers from the noisy rotation of a queue back to its ordinary one, 1,000 at a time: for a queue without a
noisy_share.';
