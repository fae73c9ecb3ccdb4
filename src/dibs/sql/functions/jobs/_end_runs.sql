-- Runs end without success: their jobs become ready again, or dead.

create or replace function dibs._due_after_run(
  outcome dibs.outcome, delay interval, due_at timestamptz, backoff dibs.backoff, attempt integer, at timestamptz)
returns timestamptz
language sql volatile
return case
  when delay > interval '0' then at + delay
  when outcome = 'released' then due_at
  when outcome = 'failed' and delay is null then at + dibs._backoff_delay(backoff, attempt)
  else at
end;

comment on function dibs._due_after_run is
'Return when a job is due again: after the requested delay, at its old place if it was released, or by its backoff if it
failed.';

create or replace function dibs._dead_state(
  outcome dibs.outcome, is_final boolean, lease dibs.lease, max_attempts integer, max_losses integer) returns text
language sql immutable parallel safe
return case
  when (lease).cancel is not null then 'cancelled'
  when is_final then 'failed'
  when outcome in ('failed', 'lost') and (lease).charged >= max_attempts then 'exhausted'
  when outcome = 'lost' and (lease).losses + 1 >= max_losses then 'exhausted'
end;

comment on function dibs._dead_state is
'Return the state of a job that is dead after a run without success; null if the job becomes ready again. The claim has
counted this run in `charged`; its loss is not yet counted in `losses`.';

create or replace function dibs._reason_after_run(outcome dibs.outcome, lease dibs.lease, error text) returns text
language sql stable
return coalesce((lease).cancel, nullif(error, ''), 'attempt ' || (lease).charged || ' ended as ' || outcome)
  || case when outcome = 'lost' and (lease).cancel is null then format(' (%s times)', (lease).losses + 1) else '' end;

comment on function dibs._reason_after_run is
'Return the reason that a dead job shows: that of its cancellation, otherwise its error, otherwise how the run ended.
After a lost run, say how many were lost.';

-- ON CONFLICT: a run that is in the history already must not stop the rescue of other jobs.
create or replace function dibs._end_runs(
  outcome dibs.outcome, ids uuid[], tokens uuid[], at timestamptz, errors text[] default null,
  delays interval[] default null, finals boolean[] default null)
returns table (id uuid, token uuid, state text, due_at timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_uncharged constant integer := (outcome in ('snoozed', 'released'))::integer;
  v_ended record;
begin
  with asked as materialized (
    select * from unnest(ids, tokens, errors, delays, finals) as k (id, token, error, delay, final) order by k.id
  ), held as materialized (
    select l.*, a.error, coalesce(l.history, q.history) as keep, l.charged - v_uncharged as new_charged,
      l.losses + (outcome = 'lost')::integer as new_losses,
      dibs._dead_state(outcome, a.final, l.lease, coalesce(j.max_attempts, q.max_attempts), q.max_losses) as dead_state,
      dibs._due_after_run(outcome, a.delay, l.due_at, coalesce(j.backoff, q.backoff), l.charged, at) as due,
      dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q, l.charged - v_uncharged + 1) as next_lease
    from asked as a
    cross join lateral (
      select l.*, l as lease from dibs.lease as l where l.id = a.id and l.token = a.token for update) as l
    join dibs.queue as q on q.id = l.queue_id
    left join lateral (select j.* from dibs.job as j where j.id = l.id offset 0) as j on true
  ), gone as (
    delete from dibs.lease as l using held as h where l.id between h.id and h.id
    returning h.*, dibs._holding(l, l.group_hold, h.dead_state is null) as holding
  ), new_attempt as (
    insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, outcome, worker, error, progress)
    select g.id, g.token, g.claimed_at, at, g.queue_id, g.run,
      case when g.dead_state = 'cancelled' then 'cancelled' else outcome end, g.worker, g.error, g.progress
    from gone as g where g.keep = 'all' or g.keep = 'failures' and outcome in ('failed', 'lost')
    on conflict do nothing
  ), new_dead as (
    insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state, reason,
      fingerprint)
    select g.id, g.due_at, at, g.queue_id, g.run, g.new_charged, g.new_losses, g.priority, g.history, g.dead_state,
      dibs._reason_after_run(outcome, g.lease, g.error), g.fingerprint
    from gone as g where g.dead_state is not null
  )
  select array_agg(g.id) as ids, array_agg(g.token) as tokens,
    array_agg(coalesce(g.dead_state, case when g.due > at then 'scheduled' else 'ready' end)) as states,
    array_agg(case when g.dead_state is null then g.due end) as dues,
    array_agg(g.holding) filter (where g.group_hold > 'none' or g.limit_ids is not null) as holdings,
    array_agg(g.fingerprint) filter (where g.dead_state is not null) as hashes,
    array_agg(g.id) filter (where g.dead_state is not null) as dead,
    array_agg(dibs._ticket_after_run(g.lease, g.due, g.new_charged, g.new_losses, g.next_lease,
      ring => g.due <= at + interval '1 minute')) filter (where g.dead_state is null) as tickets
  into v_ended from gone as g;
  if num_nonnulls(v_ended.holdings, v_ended.hashes) > 0 then
    perform dibs._return_holdings(v_ended.holdings, at, v_ended.hashes, v_ended.dead);
  end if;
  if v_ended.tickets is not null then
    perform dibs._return_tickets(v_ended.tickets, at);
  end if;
  return query select * from unnest(v_ended.ids, v_ended.tokens, v_ended.states, v_ended.dues);
end
$$;

comment on function dibs._end_runs is
'End runs without success if their tokens hold the leases. Their jobs become ready again, or dead if cancelled, final or
out of attempts. Return each run that ended, with the state of its job, and when it is due if it is not dead.';

create or replace function dibs._end_uncharged_runs(
  verb text, outcome dibs.outcome, ids uuid[], tokens uuid[], delays interval[])
returns table (item integer, id uuid, answer text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_ended uuid[];
  v_tokens uuid[];
begin
  perform dibs._check_isolation(verb);
  perform dibs._check_batch(verb, ids, tokens, cardinality(delays));
  select array_agg(p.id), array_agg(p.token) into v_ended, v_tokens
  from dibs._end_runs(outcome, ids, tokens, dibs.now(), delays => dibs._check_delays(verb, delays)) as p;
  return query
  select a.item, a.id, a.answer
  from dibs._answer_batch(ids, tokens, v_ended, v_tokens, array[outcome, 'cancelled']) as a;
end
$$;

comment on function dibs._end_uncharged_runs is
'End runs for `release_many` and `snooze_many`, without charging an attempt. Return their answers.';
