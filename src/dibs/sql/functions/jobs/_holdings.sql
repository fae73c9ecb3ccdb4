-- A run holds units of limits, a place in its group, and the dedup key of its job. They are given back here.

create or replace function dibs._holding(lease dibs.lease, group_hold dibs.group_hold, waits boolean default false)
returns dibs.holding
language sql immutable parallel safe
return row((lease).queue_id, (lease).group_key, group_hold, case when waits then (lease).id end, (lease).limit_ids,
  (lease).limit_units)::dibs.holding;

comment on function dibs._holding is
'Return what the run of a lease holds. `group_hold` is the hold on its group that it gives back; `none` if its job
goes on holding the group. `waits` says that the job becomes ready again.';

-- The settings undo those of the calling verbs, which suit other statements.
create or replace function dibs._return_holdings(
  holdings dibs.holding[], at timestamptz, hashes bytea[] default null, ids uuid[] default null,
  succeeded boolean default false)
returns void
language plpgsql volatile
set enable_nestloop = on
set enable_mergejoin = off
as $$
begin
  if holdings is not null then
    perform dibs._return_units(u.id, sum(u.units)::integer, at, true)
    from unnest(holdings) as h cross join lateral unnest(h.limit_ids, h.limit_units) as u (id, units)
    group by u.id order by u.id;
    perform dibs._end_group_runs(
      array_agg(h.group_key), array_agg(h.group_hold), array_agg(h.queue_id), array_agg(h.waits), at)
    from unnest(holdings) as h where h.group_hold > 'none' having count(*) > 0;
  end if;
  if hashes is not null then
    perform dibs._free_dedup_keys(hashes, ids, succeeded);
  end if;
end
$$;

comment on function dibs._return_holdings is
'Give back the units of limits and the places in groups that runs held, and free the dedup keys of jobs that ended:
`hashes[i]` is the key of job `ids[i]`, or null. If the jobs `succeeded`, keys that are held for a window stay.';
