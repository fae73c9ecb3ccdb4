-- complete: lease → succeeded.

create or replace function dibs._complete_one(id uuid, token uuid, result jsonb) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_run record;
begin
  if pg_column_size(result) > dibs._most('result') / 10000 then
    perform dibs._check_json('a result', result, 'result');
  end if;
  delete from dibs.lease as l where l.id = _complete_one.id and l.token = _complete_one.token
  returning l.claimed_at, l.queue_id, l.run, l.worker, l.history, l.fingerprint, l.progress, l.lane, l.turn, l.limit_ids, l.limit_units
  into v_run;
  if not found then
    return false;
  end if;
  insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, worker, result, progress)
  select _complete_one.id, _complete_one.token, v_run.claimed_at, v_now, v_run.queue_id, v_run.run, v_run.worker,
    _complete_one.result, v_run.progress
  from dibs.queue as q where q.id = v_run.queue_id and coalesce(v_run.history, q.history) = 'all';
  if v_run.turn > 0 or v_run.limit_ids is not null then
    perform dibs._give_back(
      array[row(v_run.lane, v_run.turn, v_run.queue_id, v_run.limit_ids, v_run.limit_units)::dibs.holding], v_now);
  end if;
  if v_run.fingerprint is not null then
    perform dibs._free_fingerprints(array[v_run.fingerprint], array[_complete_one.id], true);
  end if;
  return true;
end
$$;

comment on function dibs._complete_one is
'As complete_many, for one job without follow-ups; whether the token held it. Most of what a batch costs is its beginning.';

create or replace function dibs.complete_many(
  ids uuid[], tokens uuid[], results jsonb[] default null, follow_ups jsonb default null)
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_ended uuid[];
  v_tokens uuid[];
  v_prints bytea[];
  v_any boolean;
  v_held dibs.holding[];
begin
  perform dibs._check_batch('complete', ids, tokens, cardinality(results));
  if cardinality(ids) = 1 and follow_ups is null and dibs._complete_one(ids[1], tokens[1], results[1]) then
    item := 1;
    id := ids[1];
    answer := 'ok';
    return next;
    return;
  end if;
  if pg_column_size(results) > dibs._most('result') / 10000 then
    perform dibs._check_json('a result', r, 'result') from unnest(results) as r;
  end if;
  with asked as materialized (
    select k.id, k.token, k.result from unnest(ids, tokens, results) as k (id, token, result) order by k.id
  ), gone as (
    -- A range, not an equality: such a join cannot be turned around (sql/README.md, "Planner settings").
    delete from dibs.lease as l using asked as a
    where l.id between a.id and a.id and l.token = a.token
    returning l.id, l.token, l.claimed_at, l.queue_id, l.run, l.worker, l.history, l.fingerprint, l.progress, a.result,
      l.lane, l.turn, l.limit_ids, l.limit_units
  ), kept as (
    insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, worker, result, progress)
    select g.id, g.token, g.claimed_at, v_now, g.queue_id, g.run, g.worker, g.result, g.progress
    from gone as g join dibs.queue as q on q.id = g.queue_id
    where coalesce(g.history, q.history) = 'all'
  )
  select array_agg(g.id), array_agg(g.token), array_agg(g.fingerprint), bool_or(g.fingerprint is not null),
    array_agg(row(g.lane, g.turn, g.queue_id, g.limit_ids, g.limit_units)::dibs.holding)
      filter (where g.turn > 0 or g.limit_ids is not null)
  into v_ended, v_tokens, v_prints, v_any, v_held from gone as g;

  if v_held is not null then
    perform dibs._give_back(v_held, v_now);
  end if;

  if v_any then
    perform dibs._free_fingerprints(v_prints, v_ended, true);
  end if;
  if follow_ups is not null then
    perform dibs._enqueue_follow_ups(ids, tokens, v_ended, v_tokens, follow_ups);
  end if;
  if cardinality(v_ended) = cardinality(ids) then
    return query select k.n::integer, k.id, 'ok' from unnest(ids) with ordinality as k (id, n);
  else
    return query
    select a.item, a.id, a.answer from dibs._answer_batch(ids, tokens, v_ended, v_tokens, '{succeeded}') as a;
  end if;
end
$$;

comment on function dibs.complete_many is
'End many jobs as succeeded. Answers for each item, in order: `ok`; `already` when the same token completed it
before; `lost` when the token does not hold it. `follow_ups` is a JSON array as long as `ids`; each element is
null or an array of jobs as `enqueue_many` takes them, enqueued only if that item is `ok`.';

create or replace function dibs.complete(
  id uuid, token uuid, result jsonb default null, follow_ups jsonb default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
  if follow_ups is null and dibs._complete_one(complete.id, token, result) then
    return 'ok';
  end if;
  return dibs._require_lease('complete', complete.id, (
    select c.answer from dibs.complete_many(array[complete.id], array[token], array[result],
      case when follow_ups is not null then jsonb_build_array(follow_ups) end) as c));
end
$$;

comment on function dibs.complete is
'End a job as succeeded, with a result, in the caller''s transaction; `follow_ups` is a JSON array of jobs enqueued
with it. Answers `ok`, or `already` when the same token did so before; raises DI001 when the token does not hold it.';
