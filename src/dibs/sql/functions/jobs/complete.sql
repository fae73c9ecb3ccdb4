-- complete: lease → succeeded.

create or replace function dibs._complete_one(id uuid, token uuid, result jsonb) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_run record;
begin
  -- Only a large result needs the check, which writes it as text: a number such as 1e9999 grows by that.
  if pg_column_size(result) > dibs._constant('result_bound') / 10000 then
    perform dibs._check_json('a result', result, 'result');
  end if;
  delete from dibs.lease as l where l.id = _complete_one.id and l.token = _complete_one.token
  returning l.claimed_at, l.queue_id, l.run, l.worker, l.history, l.fingerprint, l.progress,
    case when l.group_hold > 'none' or l.limit_ids is not null then array[dibs._holding(l, l.group_hold)] end
      as holdings
  into v_run;
  if not found then
    return false;
  end if;
  insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, worker, result, progress)
  select _complete_one.id, _complete_one.token, v_run.claimed_at, v_now, v_run.queue_id, v_run.run, v_run.worker,
    _complete_one.result, v_run.progress
  from dibs.queue as q where q.id = v_run.queue_id and coalesce(v_run.history, q.history) = 'all';
  if v_run.holdings is not null or v_run.fingerprint is not null then
    perform dibs._return_holdings(v_run.holdings, v_now,
      case when v_run.fingerprint is not null then array[v_run.fingerprint] end, array[_complete_one.id],
      succeeded => true);
  end if;
  return true;
end
$$;

comment on function dibs._complete_one is
'End one job as succeeded if the token holds it, and return whether it does. Do the same as `complete_many`, at half the
cost.';

create or replace function dibs.complete_many(
  ids uuid[], tokens uuid[], results jsonb[] default null, follow_ups jsonb default null)
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_nestloop = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_ended uuid[];
  v_tokens uuid[];
  v_hashes bytea[];
  v_holdings dibs.holding[];
begin
  perform dibs._check_batch('complete', ids, tokens, cardinality(results));
  if cardinality(ids) = 1 and follow_ups is null and dibs._complete_one(ids[1], tokens[1], results[1]) then
    item := 1;
    id := ids[1];
    answer := 'ok';
    return next;
    return;
  end if;
  if pg_column_size(results) > dibs._constant('result_bound') / 10000 then
    perform dibs._check_json('a result', r, 'result') from unnest(results) as r;
  end if;
  -- Delete leases in the order of their ids, so that two batches cannot deadlock. A merge join by id does so; a hash
  -- join that runs out of memory keeps no order, and a nested loop is slow. `is not distinct from` rules out a merge by
  -- token.
  with gone as (
    delete from dibs.lease as l using unnest(ids, tokens, results) as a (id, token, result)
    where l.id = a.id and l.token is not distinct from a.token and l.id = any (ids)
    returning l.id, l.token, l.claimed_at, l.queue_id, l.run, l.worker, l.history, l.fingerprint, l.progress, a.result,
      case when l.group_hold > 'none' or l.limit_ids is not null then dibs._holding(l, l.group_hold) end as holding
  ), without_history as (  -- One lookup for each queue, not for each job.
    select q.id from (select distinct g.queue_id from gone as g) as n
    cross join lateral (select q.id from dibs.queue as q where q.id = n.queue_id and q.history <> 'all' offset 0) as q
  ), new_attempt as (
    insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, worker, result, progress)
    select g.id, g.token, g.claimed_at, v_now, g.queue_id, g.run, g.worker, g.result, g.progress from gone as g
    where case when g.history is null then g.queue_id not in (select w.id from without_history as w)
      else g.history = 'all' end
  )
  select array_agg(g.id), array_agg(g.token), case when count(g.fingerprint) > 0 then array_agg(g.fingerprint) end,
    array_agg(g.holding) filter (where g.holding is distinct from null)
  into v_ended, v_tokens, v_hashes, v_holdings from gone as g;
  if num_nonnulls(v_holdings, v_hashes) > 0 then
    perform dibs._return_holdings(v_holdings, v_now, v_hashes, v_ended, succeeded => true);
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
'End many jobs as succeeded. Return an answer for each item, in order: `ok`; `already` if the same token completed it
before; `lost` if the token does not hold it. `follow_ups` is a JSON array as long as `ids`; each element is null or an
array of jobs as `enqueue_many` takes them, which are enqueued only if that item is `ok`, and for a run that stands in
the batch twice only those of its first item.';

create or replace function dibs.complete(
  id uuid, token uuid, result jsonb default null, follow_ups jsonb default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
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
'End a job as succeeded, with a result, in the caller''s transaction; `follow_ups` is a JSON array of jobs to enqueue
with it. Return `ok`, or `already` if the same token did so before; raise DI001 if the token does not hold the job.';
