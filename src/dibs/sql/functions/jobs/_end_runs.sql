-- How a run ends without success: back to ready, or dead.

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
'When a job is due after a run that did not succeed: after the delay asked for, at its old place, or by its backoff.';

create or replace function dibs._end_runs(
  outcome dibs.outcome, ids uuid[], tokens uuid[], errors text[], delays interval[], finals boolean[],
  at timestamptz)
returns table (id uuid, token uuid, state text, due_at timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_ended record;
begin
  with asked as materialized (
    select * from unnest(ids, tokens, errors, delays, finals) as k (id, token, error, delay, final) order by k.id
  ), held as materialized (
    select l.*, a.error, q.ring, coalesce(l.history, q.history) as keep,
      l.charged - (outcome in ('snoozed', 'released'))::integer as charge,
      l.losses + (outcome = 'lost')::integer as lost,
      case when l.cancel is not null then 'cancelled' when a.final then 'failed'
        when outcome in ('failed', 'lost') and l.charged >= coalesce(j.max_attempts, q.max_attempts)
          or outcome = 'lost' and l.losses + 1 >= q.max_losses then 'exhausted' end as verdict,
      dibs._due_after_run(outcome, a.delay, l.due_at, coalesce(j.backoff, q.backoff), l.charged, at) as due,
      dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q,
        l.charged + (outcome not in ('snoozed', 'released'))::integer) as next_lease
    from asked as a
    cross join lateral (
      select l.* from dibs.lease as l where l.id = a.id and l.token = a.token for update) as l
    join dibs.queue as q on q.id = l.queue_id
    -- OFFSET 0 keeps it a lookup by key: planned on empty partitions, a join could read them whole later.
    left join lateral (
      select j.max_attempts, j.backoff, j.lease, j.lease_growth, j.lease_cap
      from dibs.job as j where j.id = l.id offset 0) as j on true
  ), gone as (
    delete from dibs.lease as l using held as h where l.id between h.id and h.id
    returning h.*, dibs._holding(l, l.group_hold, h.verdict is null) as holding
  ), kept as (
    insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, outcome, worker, error, progress)
    select g.id, g.token, g.claimed_at, at, g.queue_id, g.run,
      case when g.verdict = 'cancelled' then 'cancelled' else outcome end, g.worker, g.error, g.progress
    from gone as g where g.keep = 'all' or g.keep = 'failures' and outcome in ('failed', 'lost')
    on conflict do nothing  -- Should a run have been counted twice, its job must not keep all others from being rescued.
  ), waiting as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring,
      own_lease, history, fingerprint, group_key, cost)
    select g.id, g.due, g.expire_at, g.queue_id, g.run, g.charge, g.lost, g.priority,
      g.ring and g.due <= at + interval '1 minute', g.next_lease, g.history, g.fingerprint, g.group_key, g.cost
    from gone as g where g.verdict is null
  ), ended as (
    insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state,
      reason, fingerprint)
    select g.id, g.due_at, at, g.queue_id, g.run, g.charge, g.lost, g.priority, g.history,
      g.verdict, coalesce(g.cancel, nullif(g.error, ''), 'attempt ' || g.charged || ' ended as ' || outcome)
        || case when outcome = 'lost' and g.cancel is null then format(' (%s times)', g.lost) else '' end, g.fingerprint
    from gone as g where g.verdict is not null
  )
  select array_agg(g.id) as ids, array_agg(g.token) as tokens,
    array_agg(coalesce(g.verdict, case when g.due > at then 'scheduled' else 'ready' end)) as states,
    array_agg(case when g.verdict is null then g.due end) as dues,
    array_agg(g.holding) filter (where g.group_hold > 'none' or g.limit_ids is not null) as holdings,
    array_agg(g.fingerprint) filter (where g.verdict is not null and g.fingerprint is not null) as hashes,
    array_agg(g.id) filter (where g.verdict is not null and g.fingerprint is not null) as dead,
    array_agg(g.id) filter (where g.verdict is null and g.group_key is not null) as grouped
  into v_ended from gone as g;
  if num_nonnulls(v_ended.holdings, v_ended.hashes) > 0 then
    perform dibs._return_holdings(v_ended.holdings, at, v_ended.hashes, v_ended.dead);
  end if;
  if v_ended.grouped is not null then
    perform dibs._add_pointers(v_ended.grouped, at);
  end if;
  return query select * from unnest(v_ended.ids, v_ended.tokens, v_ended.states, v_ended.dues);
end
$$;

comment on function dibs._end_runs is
'End the runs of leases that did not succeed: back to ready, or to dead when cancelled, final or out of attempts.
For each run ended, the job''s state now and when it is due again.';

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
  from dibs._end_runs(outcome, ids, tokens, null, dibs._check_delays(verb, delays), null, dibs.now()) as p;
  return query
  select a.item, a.id, a.answer
  from dibs._answer_batch(ids, tokens, v_ended, v_tokens, array[outcome, 'cancelled']) as a;
end
$$;

comment on function dibs._end_uncharged_runs is 'End runs that are not charged as an attempt: `release` and `snooze`.';

create or replace function dibs._require_lease(verb text, id uuid, answer text) returns text
language plpgsql stable
as $$
begin
  if answer = 'lost' then
    raise exception using errcode = 'DI001',
      message = format('%s refused: this token does not hold job %s', verb, id),
      hint = 'the lease ended and was taken back, or the job has ended; do not report this run again';
  end if;
  return answer;
end
$$;

comment on function dibs._require_lease is 'Pass a single verb''s answer on, or raise DI001 when the lease is lost.';
