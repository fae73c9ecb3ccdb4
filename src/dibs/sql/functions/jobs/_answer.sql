-- Answers of verbs on ids: one for each item of a batch, or an error of a single verb.

-- The settings ask for a hash join, which the calling verbs disable for their own statements. A nested loop would
-- search the arrays once for each item.
create or replace function dibs._answer_batch(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], outcomes dibs.outcome[])
returns table (item integer, id uuid, answer text, ended_n bigint)
language sql stable
set enable_hashjoin = on
set enable_nestloop = off
begin atomic
  select k.n::integer, k.id,
    case
      when e.n is not null then 'ok'
      -- Not EXISTS, which the planner may turn into a hash of the whole table.
      when (
        select true from dibs.attempt as a
        where a.id = k.id and a.token = k.token and coalesce(a.outcome, 'succeeded') = any (outcomes) limit 1)
        then 'already'
      else 'lost'
    end,
    e.n
  from unnest(ids, tokens) with ordinality as k (id, token, n)
  left join unnest(ended, ended_tokens) with ordinality as e (id, token, n) on e.id = k.id and e.token = k.token
  order by k.n;
end;

comment on function dibs._answer_batch is
'Return the answer for each item of a batch that ends runs: `ok` if its run was ended now, `already` if the same token
ended it before with one of the `outcomes`, otherwise `lost`. `ended_n` is the position of the run in `ended`.';

create or replace function dibs._answer_failures(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], states text[], dues timestamptz[])
returns table (item integer, id uuid, answer text, state text, due_at timestamptz)
language plpgsql volatile
set enable_hashjoin = on
as $$
begin
  return query
  select a.item, a.id, a.answer,
    case a.answer when 'ok' then p.state when 'already' then dibs._state(a.id) end, p.due_at
  from dibs._answer_batch(ids, tokens, ended, ended_tokens, '{failed,cancelled}') as a
  left join unnest(states, dues) with ordinality as p (state, due_at, n) on p.n = a.ended_n
  order by a.item;
end
$$;

comment on function dibs._answer_failures is
'Return the answers of `_answer_batch` for runs that failed, and the state of each job and when it is due. `states` and
`dues` belong to `ended`.';

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

comment on function dibs._require_lease is 'Return the answer of a single verb, or raise DI001 if it is `lost`.';

create or replace function dibs._refuse_unknown_job(id uuid) returns void
language plpgsql stable
as $$
begin
  raise exception using errcode = 'DI002', message = format('there is no job %s', id),
    hint = 'it was never committed, or its retention is over and it was pruned';
end
$$;

comment on function dibs._refuse_unknown_job is 'Raise DI002: there is no job with this id.';
