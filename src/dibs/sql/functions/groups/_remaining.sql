-- The tickets that a group has left when a claim has taken its own.

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
  -- Drop a floor whose ticket is not due yet and has another pointer, which finds it in time. Keep it if that pointer
  -- is missing: a claim whose clock was ahead of `at` has deleted it.
  where not (r.due_at > at and exists (
    select from dibs.group_pointer as t
    where t.group_key = _remaining_floors.group_key and t.look_at > at and t.look_at <= r.due_at
      and t.priority = f.priority and t.floor_at <= r.due_at));
end;

comment on function dibs._remaining_floors is
'Return one row: `floors`, each raised to the first ticket that is left of its priority (locked, due later or expired
ones count). A floor without a ticket is dropped, and so is one whose ticket is due later and has another pointer; null
if none is left. `is_expired` is true if all these tickets only wait to be expired. PostgreSQL inlines this function.';
