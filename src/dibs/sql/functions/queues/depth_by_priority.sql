-- depth_by_priority: how many jobs of each priority wait and run.

create or replace function dibs.depth_by_priority(queue text)
returns table (priority smallint, scheduled bigint, ready bigint, blocked bigint, running bigint, estimated text[])
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_id constant integer := dibs._queue_number(queue);
begin
  return query
  select c.priority, coalesce(sum(c.jobs) filter (where c.state = 'scheduled'), 0)::bigint,
    coalesce(sum(c.jobs) filter (where c.state = 'ready'), 0)::bigint,
    coalesce(sum(c.jobs) filter (where c.state = 'blocked'), 0)::bigint,
    coalesce(sum(c.jobs) filter (where c.state = 'running'), 0)::bigint,
    coalesce(array_agg(c.state order by c.state) filter (where c.is_estimate), '{}')
  from dibs._count_states(array[v_id], dibs.now(), '{ready,blocked,lease}', true) as c
  where c.priority is not null group by c.priority having sum(c.jobs) > 0 order by c.priority desc;
end
$$;

comment on function dibs.depth_by_priority is
'The number of waiting and running jobs of a queue by priority, the highest first. Priorities without jobs are left out.
Large numbers are estimates, as in `depth`, and `estimated` names them.';
