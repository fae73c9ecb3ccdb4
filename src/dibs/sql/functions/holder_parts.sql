-- What the holder's verbs (extend, complete, fail, snooze, release) share. Nobody but the owner calls these.

create or replace function dibs.check_batch(verb text, ids uuid[], tokens uuid[], variadic others integer[])
returns void
language plpgsql stable
as $$
begin
  if cardinality(ids) is distinct from cardinality(tokens) or cardinality(ids) <> any (others) then
    raise exception using errcode = 'DI010',
      message = format('%s takes arrays of one length; it got %s ids, %s tokens and %s other values', verb,
        coalesce(cardinality(ids), 0), coalesce(cardinality(tokens), 0),
        coalesce(nullif(array_to_string(others, ', '), ''), 'no'));
  end if;
  if array_position(ids, null) is not null or array_position(tokens, null) is not null then
    raise exception using errcode = 'DI010', message = format('%s takes no null id and no null token', verb);
  end if;
end
$$;

comment on function dibs.check_batch is 'Refuse a batch whose arrays do not fit together.';

-- Joined by hash: the verbs switch that off for their own statements, and an array searched for each item is quadratic.
create or replace function dibs.answer_batch(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], outcomes dibs.outcome[])
returns table (item integer, id uuid, answer text, place bigint)
language sql stable
set enable_hashjoin = on
set enable_nestloop = off
begin atomic
  select k.n::integer, k.id,
    case
      when e.n is not null then 'ok'
      -- A scalar subquery and not EXISTS, which the planner may turn into a hash of the whole history.
      when (
        select true from dibs.attempt as a
        where a.id = k.id and a.token = k.token and a.outcome = any (outcomes) limit 1) then 'already'
      else 'lost'
    end,
    e.n
  from unnest(ids, tokens) with ordinality as k (id, token, n)
  left join unnest(ended, ended_tokens) with ordinality as e (id, token, n) on e.id = k.id and e.token = k.token
  order by k.n;
end;

comment on function dibs.answer_batch is
'The answer for each item of a batch that ended runs: `ok`, `already` by the same token, or `lost`; and its place among
those that ended.';

create or replace function dibs.answer_failures(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], states text[], dues timestamptz[])
returns table (item integer, id uuid, answer text, state text, due_at timestamptz)
language plpgsql volatile
set enable_hashjoin = on
as $$
begin
  return query
  select a.item, a.id, a.answer,
    case a.answer when 'ok' then p.state when 'already' then dibs.state(a.id) end, p.due_at
  from dibs.answer_batch(ids, tokens, ended, ended_tokens, '{failed,cancelled}') as a
  left join unnest(states, dues) with ordinality as p (state, due_at, n) on p.n = a.place
  order by a.item;
end
$$;

comment on function dibs.answer_failures is
'As answer_batch, and where each job went that failed.';

create or replace function dibs.backoff_delay(backoff dibs.backoff, attempt integer) returns interval
language sql volatile parallel safe
return (1 - coalesce((backoff).jitter, 0) * random()) * least(
  case (backoff).kind
    when 'exponential' then
      -- In seconds, and with a bounded exponent: no attempt number overflows an interval.
      extract(epoch from (backoff).delays[1])::double precision
        * exp(least((attempt - 1) * ln(coalesce((backoff).factor, 2)), 100))
    else extract(epoch from (backoff).delays[least(attempt, cardinality((backoff).delays))])::double precision
  end,
  extract(epoch from coalesce((backoff).cap, interval '1 year'))::double precision) * interval '1 second';

comment on function dibs.backoff_delay is 'How long to wait after a failed attempt: a constant, a list whose last value repeats, or exponential; capped, then made shorter by up to the jitter.';

create or replace function dibs.put_back(
  outcome dibs.outcome, ids uuid[], tokens uuid[], errors text[], delays interval[], finals boolean[],
  at timestamptz)
returns table (id uuid, token uuid, state text, due_at timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_put record;
begin
  with asked as materialized (
    select * from unnest(ids, tokens, errors, delays, finals) as k (id, token, error, delay, final)
    order by k.id
  ), held as materialized (
    select l.*, a.error, q.ring, j.group_name,
      coalesce(l.history, q.history) as keep,
      l.charged - (outcome in ('snoozed', 'released'))::integer as charge,
      case
        when l.cancel is not null then 'cancelled'
        when a.final then 'failed'
        when outcome in ('failed', 'lost') and l.charged >= coalesce(j.max_attempts, q.max_attempts)
          then 'exhausted'
        when outcome = 'lost' and l.losses + 1 >= q.max_losses then 'exhausted'
      end as verdict,
      l.losses + (outcome = 'lost')::integer as lost,
      case
        when a.delay > interval '0' then at + a.delay
        when outcome = 'released' then l.due_at
        when outcome = 'failed' and a.delay is null
          then at + dibs.backoff_delay(coalesce(j.backoff, q.backoff), l.charged)
        else at
      end as due,
      dibs.own_lease(j.lease, j.lease_growth, j.lease_cap, q,
        l.charged + (outcome not in ('snoozed', 'released'))::integer) as next_lease
    from asked as a
    cross join lateral (
      select l.* from dibs.lease as l where l.id = a.id and l.token = a.token for update) as l
    join dibs.queue as q on q.id = l.queue_id
    -- OFFSET 0 keeps it a look-up by key: planned on empty partitions, a join could read them whole later.
    left join lateral (
      select j.max_attempts, j.backoff, j.lease, j.lease_growth, j.lease_cap, j.group_name from dibs.job as j where j.id = l.id offset 0) as j on true
  ), gone as (
    delete from dibs.lease as l using held as h where l.id = h.id returning h.*
  ), kept as (
    insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, outcome, worker, error,
      progress)
    select g.id, g.token, g.claimed_at, at, g.queue_id, g.run,
      case when g.verdict = 'cancelled' then 'cancelled' else outcome end, g.worker, g.error, g.progress
    from gone as g
    where g.keep = 'all' or g.keep = 'failures' and outcome in ('failed', 'lost')
  ), waiting as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring,
      own_lease, history, fingerprint, lane, cost)
    select g.id, g.due, g.expire_at, g.queue_id, g.run, g.charge, g.lost, g.priority,
      g.ring and g.due <= at + interval '1 minute', g.next_lease, g.history, g.fingerprint, g.lane, g.cost
    from gone as g where g.verdict is null
  ), ended as (
    insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state,
      reason, fingerprint)
    select g.id, g.due_at, at, g.queue_id, g.run, g.charge, g.lost, g.priority, g.history,
      g.verdict, coalesce(g.cancel, nullif(g.error, ''), 'attempt ' || g.charged || ' ended as ' || outcome)
        || case when outcome = 'lost' and g.cancel is null then format(' (%s times)', g.lost) else '' end, g.fingerprint
    from gone as g where g.verdict is not null
  )
  select array_agg(g.id) as ids, array_agg(g.token) as tokens, array_agg(coalesce(g.verdict,
      case when g.due > at then 'scheduled' else 'ready' end)) as states,
    array_agg(case when g.verdict is null then g.due end) as dues,
    array_agg(case when g.verdict is not null then g.fingerprint end) as prints,
    bool_or(g.verdict is not null and g.fingerprint is not null) as free,
    array_agg(g.queue_id) as queues, array_agg(g.lane) as lanes, array_agg(g.turn) as turns, bool_or(g.turn > 0) as held,
    array_agg(g.slots::text) filter (where g.slots is not null) as slots,
    array_agg(g.group_name) filter (where g.verdict is null and g.lane is not null and g.turn < 2) as groups,
    array_agg(g.queue_id) filter (where g.verdict is null and g.lane is not null and g.turn < 2) as group_queues,
    array_agg(g.due) filter (where g.verdict is null and g.lane is not null and g.turn < 2) as group_dues
  into v_put from gone as g;

  if v_put.slots is not null then
    perform dibs.return_slots(v_put.slots, at);
  end if;
  if v_put.held then
    perform dibs.return_turns(v_put.lanes, v_put.turns, v_put.queues, v_put.ids, v_put.dues, at);
  end if;
  if v_put.groups is not null then
    perform dibs.open_lanes(v_put.group_queues, v_put.groups, v_put.group_dues, at);
  end if;

  if v_put.free then
    perform dibs.free_fingerprints(v_put.prints, v_put.ids);
  end if;
  return query select p.* from unnest(v_put.ids, v_put.tokens, v_put.states, v_put.dues) as p;
end
$$;

comment on function dibs.put_back is
'End the runs of leases that did not succeed: back to ready, or to dead when cancelled, final or out of attempts.
For each run ended, the job''s state now and when it is due again.';

create or replace function dibs.bounded(verb text, delay interval) returns interval
language plpgsql immutable
as $$
begin
  if delay not between interval '0' and interval '1 year' then
    raise exception using errcode = 'DI010',
      message = format('%s takes a delay from 0 to 1 year, not %s', verb, delay);
  end if;
  return delay;
end
$$;

comment on function dibs.bounded is 'Refuse a delay that is negative or without bound.';

create or replace function dibs.bounded_all(verb text, delays interval[]) returns interval[]
language plpgsql immutable
as $$
begin
  perform dibs.bounded(verb, d) from unnest(delays) as d;
  return delays;
end
$$;

comment on function dibs.bounded_all is 'Refuse delays that are negative or without bound.';

create or replace function dibs.brief(error text) returns text
language sql immutable parallel safe
return left(error, 65536);

comment on function dibs.brief is 'An error text, cut to 64 Ki characters.';

create or replace function dibs.held(verb text, id uuid, answer text) returns text
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

comment on function dibs.held is 'Pass a single verb''s answer on, or raise DI001 when the lease is lost.';

create or replace function dibs.enqueue_follow_ups(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], follow_ups jsonb) returns void
language plpgsql volatile
as $$
declare
  v_jobs jsonb;
begin
  if jsonb_typeof(follow_ups) <> 'array' or jsonb_array_length(follow_ups) <> cardinality(ids) then
    raise exception using errcode = 'DI010',
      message = format('follow_ups must be a JSON array of %s elements, one for each id', cardinality(ids)),
      hint = 'each element is null or an array of jobs';
  end if;
  select jsonb_agg(j.job order by f.n, j.n) into v_jobs
  from jsonb_array_elements(follow_ups) with ordinality as f (jobs, n)
  cross join lateral jsonb_array_elements(
    case when jsonb_typeof(f.jobs) = 'null' then '[]' else f.jobs end) with ordinality as j (job, n)
  where tokens[f.n] = ended_tokens[array_position(ended, ids[f.n])];
  if v_jobs is null then
    return;
  end if;
  -- The completion runs as the schema's owner; the right to enqueue is the caller's own.
  if not has_function_privilege(session_user, 'dibs.enqueue_many(jsonb, bytea[], boolean)', 'execute') then
    raise exception using errcode = '42501',
      message = format('role %I may complete jobs but not enqueue, so its completions carry no follow-ups',
                       session_user),
      hint = 'grant dibs_producer to it, or let someone else enqueue';
  end if;
  perform set_config('dibs.follow_ups', 'on', true);
  perform dibs.enqueue_many(v_jobs);
  perform set_config('dibs.follow_ups', '', true);
end
$$;

comment on function dibs.enqueue_follow_ups is 'Enqueue the follow-up jobs of those items of a batch that ended.';
