-- How a claim shares its jobs between groups and jobs without one.

create or replace function dibs._count_groups(scans dibs.queue_scan[], began_us bigint, at timestamptz) returns integer
language plpgsql volatile
as $$
declare
  v_groups integer;
  v_is_due boolean;
begin
  -- Start at the rotation's floor. Late pointers lie below it, so let the groups have a turn when a look-back is due.
  select count(distinct t.lane), bool_or(r.is_due) into v_groups, v_is_due
  from (
    select (s.queue).id,
      case when f.due_us[1] <= dibs._micros(at) then dibs._from_micros(f.due_us[1]) else '-infinity' end as from_at,
      coalesce(began_us >= f.near_at or f.near_at - began_us > 60000000, true) as is_due
    from unnest(scans) as s cross join lateral (
      select (f.floor).due_us, (f.floor).near_at
      from (select dibs._recall('rotation', (s.queue).id)::dibs.floor as floor offset 0) as f) as f
  ) as r
  left join lateral (
    select t.lane from dibs.group_pointer as t where t.queue_id = r.id and t.place <= at and t.place >= r.from_at
    limit 100) as t on true;
  return case when v_is_due then greatest(v_groups, 1) else v_groups end;
end
$$;

comment on function dibs._count_groups is
'How many groups of these queues wait, up to a hundred; at least one when a claim has to look below its floor.';

create or replace function dibs._plain_share(scans dibs.queue_scan[], want integer, began_us bigint, at timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_groups integer := 1;
begin
  if not exists (select from dibs._find_heads(scans, at)) then
    return 0;
  end if;
  -- A queue without groups gets half. Within queues with groups, the jobs without one count as one more group.
  if (select bool_and((s.queue).has_groups) from unnest(scans) as s) then
    v_groups := dibs._count_groups(scans, began_us, at);
  end if;
  return least(want, floor(want / (1.0 + v_groups) + random()));
end
$$;

comment on function dibs._plain_share is
'How many of a claim''s jobs are kept for those without a group, when there are both.';
