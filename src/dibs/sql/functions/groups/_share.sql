-- The share of ungrouped jobs in a claim. FORMULAS.md derives it.

create or replace function dibs._ungrouped_share(scans dibs.queue_scan[], want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
declare
  v_scan dibs.queue_scan;
  v_groups integer := 0;
  v_floor_us bigint;
  v_from timestamptz;
begin
  if not exists (select from dibs._find_heads(scans, at)) then
    return 0;
  end if;
  foreach v_scan in array scans loop
    if not (v_scan.queue).has_groups then
      -- All jobs of this queue are ungrouped. Count one group, whatever other queues have: half is reserved.
      v_groups := 1;
      exit;
    end if;
    -- Count the groups whose pointers are due, from the rotation's floor on: this session's last claim found its first
    -- pointer there. A floor in the future is from before the clock was set back.
    v_floor_us := (dibs._recall('rotation', (v_scan.queue).id)::dibs.floor).due_us[1];
    v_from := case when v_floor_us <= dibs._micros(at) then dibs._from_micros(v_floor_us) else '-infinity' end;
    v_groups := v_groups + (
      select count(distinct t.group_key) from (
        select t.group_key from dibs.group_pointer as t
        where t.queue_id = (v_scan.queue).id and t.look_at <= at and t.look_at >= v_from limit 100) as t);
  end loop;
  if v_groups = 0 and random() < 0.02 then
    -- Pointers that were committed late may lie below the floor, and a claim looks there only if it serves groups.
    -- So now and then leave something for them.
    v_groups := 1;
  end if;
  return least(want, floor(want / (1.0 + v_groups) + random()));
end
$$;

comment on function dibs._ungrouped_share is
'Return how many of the `want` jobs of a claim are reserved for ungrouped ones: 0 if none is due; half if a queue has no
groups; otherwise as many as for one group of weight 1 beside those that wait. Groups are counted by up to 100 pointers
in each queue.';
