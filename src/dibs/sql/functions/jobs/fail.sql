-- fail: lease → ready by the job's retry policy, or → dead.

create or replace function dibs.fail_many(
  ids uuid[], tokens uuid[], errors text[] default null, finals boolean[] default null,
  delays interval[] default null)
returns table (item integer, id uuid, answer text, state text, due_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_ended record;
begin
  perform dibs._check_isolation('fail');
  perform dibs._check_batch('fail', ids, tokens, cardinality(errors), cardinality(finals), cardinality(delays));
  select array_agg(p.id) as ids, array_agg(p.token) as tokens, array_agg(p.state) as states, array_agg(p.due_at) as dues
  into v_ended
  from dibs._end_runs('failed', ids, tokens, v_now,
    errors => (select array_agg(dibs._clip_error(e) order by n) from unnest(errors) with ordinality as e (e, n)),
    delays => dibs._check_delays('fail', delays), finals => finals) as p;
  return query
  select * from dibs._answer_failures(ids, tokens, v_ended.ids, v_ended.tokens, v_ended.states, v_ended.dues);
end
$$;

comment on function dibs.fail_many is
'End many runs as failed. Each job waits for its next attempt by its backoff (or its `delays`), or is dead: `failed` if
`finals` says that it can never succeed, `exhausted` if no attempts are left. Return for each item `ok`, `already` or
`lost`, and the state and due time of the job.';

create or replace function dibs.fail(
  id uuid, token uuid, error text default null, final boolean default false, delay interval default null,
  out state text, out due_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_answer text;
begin
  select f.answer, f.state, f.due_at into v_answer, fail.state, fail.due_at
  from dibs.fail_many(array[fail.id], array[token], array[error], array[final], array[delay]) as f;
  perform dibs._require_lease('fail', fail.id, v_answer);
end
$$;

comment on function dibs.fail is
'End a run as failed: the job waits for its next attempt, or is dead if `final` or out of attempts. Return its state and
when it is due; raise DI001 if the token does not hold the job.';
