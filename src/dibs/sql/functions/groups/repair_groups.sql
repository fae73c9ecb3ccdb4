-- repair_groups: what keeps the turns of groups in order.

create or replace function dibs.repair_groups(max integer default 1000, after uuid default '00000000-0000-0000-0000-000000000000',
  out mended bigint, out next uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := dibs.now();
  v_last uuid;
begin
  perform dibs._check_isolation('sort_lanes');
  perform dibs._check_count('sort_lanes', repair_groups.max);
  v_last := (select g.id from dibs.lane as g where g.id > repair_groups.after order by g.id offset repair_groups.max - 1 limit 1);
  mended := dibs._repair_lanes(repair_groups.after, v_last, v_now);
  next := v_last;
  if v_last is null then
    mended := mended + dibs._repair_tickets(repair_groups.max);
  end if;
end
$$;

comment on function dibs.repair_groups is
'See that each group that has jobs has its turns, a chunk at a time: looks at up to `max` groups above `after`, and returns how
many it had to mend (none, unless something went wrong) and where to go on (null at the end).';
