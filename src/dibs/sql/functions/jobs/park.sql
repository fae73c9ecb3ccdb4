-- park: lease → blocked, until a worker comes that runs the kind. No attempt is charged, and no run is recorded.

create or replace function dibs._park(
  ids uuid[], tokens uuid[], at timestamptz, out parked uuid[], out parked_tokens uuid[])
language plpgsql volatile
as $$
declare
  v_holdings dibs.holding[];
  v_queues integer[];
  v_kinds text[];
  v_noted bigint;
begin
  with asked as materialized (
    select * from unnest(ids, tokens) as k (id, token) order by k.id
  ), held as materialized (
    select l.*, j.kind, j.due_at as first_due_at from asked as a
    cross join lateral (
      select l.* from dibs.lease as l where l.id = a.id and l.token = a.token and l.cancel is null for update) as l
    cross join lateral (select j.kind, j.due_at from dibs.job as j where j.id = l.id offset 0) as j
  ), gone as (
    delete from dibs.lease as l using held as h where l.id between h.id and h.id
    returning h.*,
      dibs._holding(l, case when l.group_hold = 'exclusive' then 'none' else l.group_hold end) as holding
  ), waiting as (
    -- A group in strict order waits until its parked job has ended, so the job keeps its `exclusive` hold.
    insert into dibs.blocked (id, due_at, expire_at, queue_id, run, charged, losses, priority, own_lease, history,
      fingerprint, group_key, cost, group_hold, waits_for, kind, again_at)
    select g.id, g.due_at, g.expire_at, g.queue_id, g.run, g.charged - 1, g.losses, g.priority, g.own_lease, g.history,
      g.fingerprint, g.group_key, g.cost,
      case when g.group_hold = 'exclusive' then dibs.group_hold 'exclusive' else 'none' end,
      'a worker that runs ' || g.kind, g.kind,
      at + least(greatest(at - g.first_due_at, interval '5 seconds'), interval '1 hour')
    from gone as g
  )
  select array_agg(g.id), array_agg(g.token), array_agg(g.queue_id), array_agg(g.kind), array_agg(g.holding)
  into parked, parked_tokens, v_queues, v_kinds, v_holdings from gone as g;
  if parked is null then
    return;
  end if;
  perform dibs._return_holdings(v_holdings, at);
  -- Note the kinds, and lock the notes so that none is deleted before our tickets are visible. If one was deleted
  -- before it was locked, insert it again.
  loop
    insert into dibs.parked_kind (queue_id, kind)
    select distinct k.queue_id, k.kind from unnest(v_queues, v_kinds) as k (queue_id, kind) order by 1, 2
    on conflict do nothing;
    perform from dibs.parked_kind as p
    where (p.queue_id, p.kind) in (select * from unnest(v_queues, v_kinds)) order by p.queue_id, p.kind for key share;
    get diagnostics v_noted = row_count;
    exit when v_noted = (select count(distinct k) from unnest(v_queues, v_kinds) as k);
  end loop;
  -- A worker that runs the kind may be asleep.
  perform pg_notify('dibs', q.id::text) from dibs.queue as q
  cross join lateral (select from dibs.bell as b where b.queue_id = q.id for update skip locked) as b
  where q.id = any (v_queues) and q.ring;
end
$$;

comment on function dibs._park is
'End runs whose worker does not run their kind, except those whose cancellation was requested: park their jobs until a
worker that runs it calls `unpark`. A job is offered to all workers again after the time since it was first due, at
least 5 seconds and at most an hour, because not every worker says which kinds it runs. Return the ids and tokens of the
parked jobs.';

create or replace function dibs.park_many(ids uuid[], tokens uuid[])
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_parked record;
  v_ended record;
begin
  perform dibs._check_isolation('park');
  perform dibs._check_batch('park', ids, tokens, cardinality(tokens));
  v_parked := dibs._park(ids, tokens, v_now);
  -- The leases that are left have a request to cancel: end their runs.
  select array_agg(p.id) as ids, array_agg(p.token) as tokens into v_ended
  from dibs._end_runs('released', ids, tokens, v_now) as p;
  return query
  select a.item, a.id, a.answer
  from dibs._answer_batch(
    ids, tokens, v_parked.parked || v_ended.ids, v_parked.parked_tokens || v_ended.tokens, '{cancelled}') as a;
end
$$;

comment on function dibs.park_many is
'Worker protocol: give many jobs back unrun, because the caller does not run their kinds. Each waits until a worker that
runs its kind calls `unpark`, and is offered to all workers again now and then, less and less often. No attempt is
charged and no run is recorded. A job whose cancellation was requested ends as cancelled instead. Return `ok`, `already`
or `lost` for each item.';

create or replace function dibs.park(id uuid, token uuid) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs._require_lease('park', park.id, (select r.answer from dibs.park_many(array[park.id], array[token]) as r));
end
$$;

comment on function dibs.park is
'Worker protocol: give a job back unrun, because the caller does not run its kind; see `park_many`. Return `ok`; raise
DI001 if the token does not hold the job, also if it parked the job before. Only for a job that was cancelled by its
park, the same call again returns `already`.';
