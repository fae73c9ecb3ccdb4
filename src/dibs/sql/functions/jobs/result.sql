-- result: what a job's last successful run returned.

create or replace function dibs.result(id uuid) returns jsonb
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
begin atomic
  select a.result
  from (
    select case when (select s.confined from dibs.setting as s) and dibs._is_hidden(result.id) then null
      else result.id end as id
  ) as k
  join dibs.attempt as a on a.id = k.id
  where a.outcome is null order by a.run desc limit 1;
end;

comment on function dibs.result is
'What the last successful run of a job returned; null before that, when nothing was returned, where no history is kept, and once it was
pruned.';
