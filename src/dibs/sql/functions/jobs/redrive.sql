-- redrive: dead → ready.

create or replace function dibs.redrive(
  ids uuid[] default null,
  queue text default null,
  kind text default null,
  state text default null,
  reason text default null,
  ended_after timestamptz default null,
  ended_before timestamptz default null,
  max integer default 1000,
  rate double precision default null,
  delay interval default interval '0',
  dry_run boolean default false,
  after uuid default null
)
returns table (id uuid, in_queue text, of_kind text, was text, cause text, answer text, ended_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_queues integer[] := array(
    select q.id from dibs.queue as q where redrive.queue is null or q.name = redrive.queue or q.shard_of = (
      select p.id from dibs.queue as p where p.name = redrive.queue));
  v_ids uuid[];
  v_undo dibs.undo_job[];
begin
  perform dibs._check_isolation('redrive');
  perform dibs._check_redrive(redrive.ids, redrive.queue, redrive.state, redrive.max, redrive.rate, redrive.delay);
  v_ids := case when redrive.ids is null then dibs._find_dead(
      v_queues, redrive.kind, redrive.state, redrive.reason, redrive.ended_after, redrive.ended_before, redrive.after, redrive.max)
    else array(
      select d.id from dibs.dead as d join dibs.job as j on j.id = d.id
      where d.id = any (redrive.ids)
        and (redrive.queue is null or d.queue_id = any (v_queues))
        and (redrive.kind is null or j.kind = redrive.kind)
        and (redrive.state is null or d.state = redrive.state)
        and (redrive.reason is null or d.reason like redrive.reason)
        and (redrive.ended_after is null or d.ended_at >= redrive.ended_after)
        and (redrive.ended_before is null or d.ended_at < redrive.ended_before)
      order by d.ended_at, d.id limit redrive.max) end;
  if dry_run is not true then
    perform dibs._retake_fingerprints(v_ids, v_now);
    v_ids := array(
      select d.id from unnest(v_ids) with ordinality as k (id, n)
      cross join lateral (select d.id from dibs.dead as d where d.id = k.id for update skip locked) as d order by k.n);
    v_undo := dibs._undo_of_dead(v_ids);
    return query select r.* from dibs._revive(v_ids, redrive.rate, redrive.delay, v_now) as r;
    perform dibs._note_redrive(v_undo, jsonb_strip_nulls(jsonb_build_object('ids', to_jsonb(redrive.ids), 'queue', redrive.queue,
      'kind', redrive.kind, 'states', to_jsonb(array[redrive.state]), 'reason', redrive.reason,
      'ended_after', redrive.ended_after, 'ended_before', redrive.ended_before)), redrive.rate);
    return;
  end if;
  return query
  select d.id, q.name, j.kind, d.state, d.reason, 'matched', d.ended_at
  from unnest(v_ids) with ordinality as k (id, n)
  join dibs.dead as d on d.id = k.id join dibs.job as j on j.id = d.id join dibs.queue as q on q.id = d.queue_id
  order by k.n;
end
$$;

comment on function dibs.redrive is
'Bring dead jobs back, by id or by filter (`reason` is a LIKE pattern), at most `max` in a call, oldest end first. A
filter leaves cancelled jobs alone unless `state` is cancelled. Each gets new attempts and a new TTL; a due time that is
still ahead stays, and a deadline that has passed no longer counts. `rate` is how many come back per second,
from `delay` on. `dry_run` only says what would be brought back. Answers for each: `redriven`, `matched` in a dry run,
or `duplicate` when another job holds its dedup key now (it stays dead). To go on after the last one of a call, give its ended_at as
`ended_after` and its id as `after`. A call looks at 100,000 dead jobs or so, and refuses a filter that none of them matches.';
