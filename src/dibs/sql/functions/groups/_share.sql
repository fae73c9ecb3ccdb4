-- How a claim shares its jobs between queues with groups, and jobs without one.

create or replace function dibs._shuffled(places integer[]) returns integer[]
language sql volatile
return case when cardinality(places) = 1 then places else array(select p from unnest(places) as p order by random()) end;

comment on function dibs._shuffled is 'In any order, so that no queue with groups is always the first.';

create or replace function dibs._plain_share(
  queues dibs.queue[], floors bigint[], backs bigint[], grouped integer[], want integer, at timestamptz)
returns integer
language plpgsql volatile
as $$
declare
  v_only_groups boolean := cardinality(queues) = cardinality(grouped);
  v_groups integer;
begin
  if not exists (
    select from unnest(floors) with ordinality as f (due_us, n)
    cross join lateral (
      select from dibs.ready as r
      where r.queue_id = (queues[(f.n - 1) / 11 + 1]).id and r.priority = ((f.n - 1) % 11)::smallint and r.lane is null
        and r.due_at >= dibs._from_micros(f.due_us - backs[(f.n - 1) / 11 + 1]) and r.due_at <= at
      limit 1) as r) then
    return 0;
  end if;
  -- A queue without groups gets half; jobs without a group count as one group among those that wait, up to a hundred.
  v_groups := case when v_only_groups then (
    select count(distinct t.lane) from unnest(grouped) as q
    cross join lateral (
      select t.lane from dibs.group_pointer as t where t.queue_id = (queues[q]).id and t.place <= at
        and t.place >= at - interval '1 minute' limit 100) as t)
    else 1 end;
  return least(want, floor(want / (1.0 + v_groups) + random()));
end
$$;

comment on function dibs._plain_share is
'How many of a claim''s jobs are kept for those without a group, when there are both.';
