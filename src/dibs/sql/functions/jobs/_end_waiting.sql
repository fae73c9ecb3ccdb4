-- Waiting tickets end.

create or replace function dibs._end_waiting_jobs(ids uuid[], state text, reason text, at timestamptz)
returns table (id uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_gone dibs.ready[] := dibs._withdraw_tickets(ids, at);
  v_buried uuid[];
  v_prints bytea[];
  v_any boolean;
  v_put bigint;
begin
  if v_gone is null then
    return;
  end if;
  insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state, reason,
    fingerprint)
  select g.id, g.due_at, at, g.queue_id, g.run, g.charged, g.losses, g.priority, g.history, _end_waiting_jobs.state,
    coalesce(_end_waiting_jobs.reason, _end_waiting_jobs.state), g.fingerprint
  from unnest(v_gone) as g;
  get diagnostics v_put = row_count;
  perform dibs._check_moved(cardinality(v_gone), v_put);
  select array_agg(g.id), array_agg(g.fingerprint), bool_or(g.fingerprint is not null)
  into v_buried, v_prints, v_any from unnest(v_gone) as g;
  if v_any then
    perform dibs._free_dedup_keys(v_prints, v_buried);
  end if;
  perform dibs._record_unrun_jobs(v_buried, _end_waiting_jobs.state, at);
  return query select unnest(v_buried);
end
$$;

comment on function dibs._end_waiting_jobs is 'End those of the jobs that wait; `ids` must be sorted. Returns the ids it ended.';

create or replace function dibs._no_such_job(id uuid) returns void
language plpgsql stable
as $$
begin
  raise exception using errcode = 'DI002', message = format('there is no job %s', id),
    hint = 'it was never committed, or its retention is over and it was pruned';
end
$$;

comment on function dibs._no_such_job is 'Raise DI002.';
