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
  v_put record;
begin
  perform dibs._check_isolation('fail');
  perform dibs._check_batch('fail', ids, tokens, cardinality(errors), cardinality(finals),
    cardinality(delays));
  select array_agg(p.id) as ids, array_agg(p.token) as tokens, array_agg(p.state) as states, array_agg(p.due_at) as dues
  into v_put
  from dibs._end_runs('failed', ids, tokens,
    (select array_agg(dibs._clip_error(e) order by n) from unnest(errors) with ordinality as e (e, n)),
    dibs._check_delays('fail', delays), finals, v_now) as p;
  return query select * from dibs._answer_failures(ids, tokens, v_put.ids, v_put.tokens, v_put.states, v_put.dues);
end
$$;

comment on function dibs.fail_many is
'Report many runs as failed. Each goes back to wait by its backoff (or its `delays`), or is dead: `failed` when
`finals` says it can never work, `exhausted` when no attempts are left. Answers for each item: `ok`, `already` or
`lost`, and the job''s state and due time now.';

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
'Report a run as failed: the job waits for its next attempt, or is dead when `final` or out of attempts. Returns its
state and when it is due; raises DI001 when the token does not hold it.';
