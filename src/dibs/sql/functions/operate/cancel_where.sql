-- cancel_where: cancel jobs by filter.

create or replace function dibs.cancel_where(
  filter jsonb, reason text default 'cancelled by request', max integer default 1000, after uuid default null,
  continues bigint default null, dry_run boolean default false,
  out matched bigint, out done bigint, out next uuid, out operation bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_states constant text[] := '{scheduled,ready,blocked,running}'::text[];
  v_now timestamptz := dibs.now();
  v_filter dibs.job_filter := dibs._read_filter('cancel_where', cancel_where.filter, v_states);
  v_found uuid[];
  v_expiries jsonb;
  v_cancelled uuid[];
begin
  select s.ids, s.next into v_found, cancel_where.next
  from dibs._begin_step('cancel_where', cancel_where.filter, v_states, cancel_where.max,
    cancel_where.after, cancel_where.continues, v_now) as s;
  matched := cardinality(v_found);
  done := 0;
  if cancel_where.dry_run or matched = 0 then
    operation := cancel_where.continues;
    return;
  end if;
  v_expiries := dibs._expiry_times(v_found);
  select array_agg(c.id) filter (where c.answer = 'cancelled'),
    count(*) filter (where c.answer in ('cancelled', 'requested'))
  into v_cancelled, done from dibs._cancel_batch(v_found, cancel_where.reason, guarded => true,
    includes_running => 'running' = any (v_filter.states)) as c;
  operation := dibs._audit('cancel_where', cancel_where.filter ->> 'queue', cancel_where.filter, done,
    jsonb_build_object('reason', cancel_where.reason), cancel_where.continues);
  perform dibs._save_undo(operation, dibs._snapshot_cancelled(v_cancelled, v_expiries), v_cancelled);
end
$$;

comment on function dibs.cancel_where is
'Cancel jobs by filter: waiting jobs are dead at once, and the workers of running jobs are asked to stop them. A step of
up to `max`, with the same answer as `delete`.';
