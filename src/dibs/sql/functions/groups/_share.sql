-- How a claim shares its jobs between groups and jobs without one.

create or replace function dibs._plain_share(scans dibs.queue_scan[], want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
declare
  v_groups integer := 1;
begin
  if not exists (select from dibs._find_heads(scans, at)) then
    return 0;
  end if;
  -- A queue without groups gets half; jobs without a group count as one group among those that wait, up to a hundred.
  if (select bool_and((s.queue).has_groups) from unnest(scans) as s) then
    v_groups := (
      select count(distinct t.lane) from unnest(scans) as s
      cross join lateral (
        select t.lane from dibs.group_pointer as t where t.queue_id = (s.queue).id and t.place <= at
          and t.place >= at - interval '1 minute' limit 100) as t);
  end if;
  return least(want, floor(want / (1.0 + v_groups) + random()));
end
$$;

comment on function dibs._plain_share is
'How many of a claim''s jobs are kept for those without a group, when there are both.';
