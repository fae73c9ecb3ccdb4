-- The tickets that are left when a claim has taken its own. PostgreSQL inlines both functions.

create or replace function dibs._has_later_pointer(
  group_key uuid, priority smallint, due_at timestamptz, at timestamptz) returns setof boolean
language sql stable
begin atomic
  select exists (
    select from dibs.group_pointer as t
    where t.group_key = _has_later_pointer.group_key
      and t.look_at > _has_later_pointer.at and t.look_at <= _has_later_pointer.due_at
      and (_has_later_pointer.priority is null
        or t.priority = _has_later_pointer.priority and t.floor_at <= _has_later_pointer.due_at));
end;

comment on function dibs._has_later_pointer is
'True if a pointer makes a claim look at the group after `at` and no later than `due_at`: at tickets of this priority,
or, if it is null, at all.';

create or replace function dibs._remaining_floors(
  queue_id integer, group_key uuid, floors dibs.group_floor[], at timestamptz)
returns table (floors dibs.group_floor[], is_expired boolean)
language sql stable
begin atomic
  select array_agg(row(f.priority, r.due_at, r.id, coalesce(r.cost, 1))::dibs.group_floor), bool_and(r.expire_at <= at)
  from unnest(_remaining_floors.floors) as f
  cross join lateral (
    select r.due_at, r.id, r.cost, r.expire_at from dibs.ready as r
    where r.queue_id = _remaining_floors.queue_id and r.group_key = _remaining_floors.group_key
      and r.priority = f.priority
      and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
    order by r.due_at, r.id limit 1) as r
  -- A later ticket has its own pointer, unless a claim took it whose clock was ahead of `at`.
  where r.due_at <= at
    or not (select p from dibs._has_later_pointer(_remaining_floors.group_key, f.priority, r.due_at, at) as p);
end;

comment on function dibs._remaining_floors is
'Return one row: the floors, each raised to its first ticket that is left, without those that have none (null if none
is left); and true in `is_expired` if all these tickets only wait to be expired.';
