-- Groups with more than their share of what runs.

create or replace function dibs._mark_noisy(queue dibs.queue, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_real bigint := dibs._micros(clock_timestamp());
begin
  -- Looked at once a second by each connection: it counts all that runs.
  if abs(v_real - coalesce(dibs._recall('noisy', (queue).id)::bigint, 0)) < 1000000 then
    return;
  end if;
  perform dibs._remember('noisy', (queue).id, v_real::text);
  insert into dibs.group_pointer (queue_id, group_key, place)
  select -(queue).id, r.group_key, at
  from (
    select l.group_key, count(*) as jobs, sum(count(*)) over () as total from dibs.lease as l
    where l.queue_id = (queue).id group by l.group_key
  ) as r
  where r.group_key is not null and r.jobs > 1 and r.jobs > r.total * (queue).noisy_share
    and not exists (select from dibs.group_pointer as t where t.group_key = r.group_key and t.queue_id = -(queue).id);
end
$$;

comment on function dibs._mark_noisy is
'Mark the groups that have more than their share of a queue''s running jobs, with a pointer below zero: they are served last, until
they have no jobs left.';

create or replace function dibs._set_noisy_aside(queue dibs.queue, hands dibs.group_hand[], at timestamptz) returns dibs.group_hand[]
language plpgsql volatile
as $$
declare
  v_noisy uuid[] := array(
    select h.group_key from unnest(hands) as h
    where exists (select from dibs.group_pointer as t where t.group_key = h.group_key and t.queue_id = -(queue).id));
begin
  if v_noisy = '{}' then
    return hands;
  end if;
  insert into dibs.group_pointer (queue_id, group_key, place, level, floor_at, floor_id, cost, freed, next)
  select -(queue).id, h.group_key, at, f.level, f.due_at, f.id, f.cost, 0, null
  from unnest(hands) as h cross join lateral unnest(h.floors) as f where h.group_key = any (v_noisy) and h.is_own
  union all
  select -(queue).id, h.group_key, at, null, null, null, 1, h.freed, (h.next).id
  from unnest(hands) as h
  where h.group_key = any (v_noisy) and h.is_own and (h.freed > 0 or (h.next).id is not null or h.floors is null);
  return array(select h from unnest(hands) as h where h.group_key <> all (v_noisy));
end
$$;

comment on function dibs._set_noisy_aside is 'Move the pointers of noisy groups below zero; the other hands are returned.';

create or replace function dibs._end_noise(queue dibs.queue, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  -- A claim that began before noisy_share was taken away may still set a group aside, so this is asked again now and then.
  with gone as (
    delete from dibs.group_pointer as t where t.ctid = any (array(
      select o.ctid from dibs.group_pointer as o where o.queue_id = -(queue).id
      order by o.queue_id, o.place, o.n limit 1000 for update skip locked))
    returning t.*
  )
  insert into dibs.group_pointer (queue_id, group_key, place, level, floor_at, floor_id, cost, freed, next)
  select (queue).id, g.group_key, greatest(g.place, at), g.level, g.floor_at, g.floor_id, g.cost, g.freed, g.next from gone as g;
end
$$;

comment on function dibs._end_noise is 'Bring the pointers of groups that were noisy back above zero, once nothing counts as noisy.';
