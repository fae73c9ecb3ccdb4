-- Waiting jobs end: cancelled, expired, replaced or unreadable.

create or replace function dibs._end_waiting_jobs(ids uuid[], state text, reason text, at timestamptz)
returns table (id uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_withdrawn dibs.ready[] := dibs._withdraw_tickets(ids, at);
  v_ids uuid[];
  v_hashes bytea[];
  v_inserted bigint;
begin
  if v_withdrawn is null then
    return;
  end if;
  insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state, reason,
    fingerprint)
  select w.id, w.due_at, at, w.queue_id, w.run, w.charged, w.losses, w.priority, w.history, _end_waiting_jobs.state,
    coalesce(_end_waiting_jobs.reason, _end_waiting_jobs.state), w.fingerprint
  from unnest(v_withdrawn) as w;
  get diagnostics v_inserted = row_count;
  perform dibs._check_moved(cardinality(v_withdrawn), v_inserted);
  select array_agg(w.id), case when count(w.fingerprint) > 0 then array_agg(w.fingerprint) end
  into v_ids, v_hashes from unnest(v_withdrawn) as w;
  if v_hashes is not null then
    perform dibs._free_dedup_keys(v_hashes, v_ids);
  end if;
  perform dibs._record_unrun_jobs(v_ids, _end_waiting_jobs.state, at);
  return query select unnest(v_ids);
end
$$;

comment on function dibs._end_waiting_jobs is
'Make those jobs dead that wait, with a state of `dead` and a reason (the state by default). `ids` must be sorted, or
their tickets be locked. Return the ids of the jobs that it ended.';
