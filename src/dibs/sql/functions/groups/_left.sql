-- What is left when a claim has taken its tickets.

-- Both are of this form so that they become a part of the statement that uses them.
create or replace function dibs._is_pointed_at(group_key uuid, level smallint, due_at timestamptz, at timestamptz) returns setof boolean
language sql stable
begin atomic
  select exists (
    select from dibs.group_pointer as t
    where t.group_key = _is_pointed_at.group_key and t.place > _is_pointed_at.at and t.place <= _is_pointed_at.due_at
      and coalesce(t.level = _is_pointed_at.level and t.floor_at <= _is_pointed_at.due_at, _is_pointed_at.level is null));
end;

comment on function dibs._is_pointed_at is 'Whether a claim will look at a group in time for a ticket of this priority that is due later; or, without a priority, at its gate.';

create or replace function dibs._left_over(queue_id integer, group_key uuid, floors dibs.group_floor[], at timestamptz)
returns table (floors dibs.group_floor[], is_expired boolean)
language sql stable
begin atomic
  select array_agg(row(f.level, r.due_at, r.id, coalesce(r.cost, 1))::dibs.group_floor), bool_and(r.expire_at <= at)
  from unnest(_left_over.floors) as f
  cross join lateral (
    select r.due_at, r.id, r.cost, r.expire_at from dibs.ready as r
    where r.queue_id = _left_over.queue_id and r.group_key = _left_over.group_key and r.priority = f.level
      and (r.due_at, r.id) >= (f.due_at, coalesce(f.id, dibs._nil_id()))
    order by r.due_at, r.id limit 1) as r
  -- What is due later has its own pointer, unless a claim whose clock was ahead of ours has merged it.
  where r.due_at <= at or not (select p from dibs._is_pointed_at(_left_over.group_key, f.level, r.due_at, at) as p);
end;

comment on function dibs._left_over is
'The first ticket that is left at each floor, if any; and whether they all only wait to be expired.';
