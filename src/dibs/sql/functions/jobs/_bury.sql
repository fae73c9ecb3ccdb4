-- Waiting tickets end.

create or replace function dibs._bury(ids uuid[], state text, reason text, at timestamptz)
returns table (id uuid)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_buried uuid[];
  v_prints bytea[];
  v_any boolean;
  v_lanes uuid[];
  v_queues integer[];
  v_turns smallint[];
begin
  with unready as (
    delete from dibs.ready as r using (
      select r.id from unnest(ids) as k (id)
      cross join lateral (select r.id from dibs.ready as r where r.id = k.id for update) as r
    ) as h where r.id between h.id and h.id returning r.*
  ), unblocked as (
    delete from dibs.blocked as b using (
      select b.id from unnest(ids) as k (id)
      cross join lateral (select b.id from dibs.blocked as b where b.id = k.id for update) as b
    ) as h where b.id between h.id and h.id returning b.*
  ), gone as (
    select r.id, r.due_at, r.queue_id, r.run, r.charged, r.losses, r.priority, r.history, r.fingerprint,
      r.lane, 0::smallint as turn
    from unready as r
    union all
    select b.id, b.due_at, b.queue_id, b.run, b.charged, b.losses, b.priority, b.history, b.fingerprint,
      b.lane, b.turn
    from unblocked as b
  ), ended as (
    insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, history, state, reason,
      fingerprint)
    select g.id, g.due_at, at, g.queue_id, g.run, g.charged, g.losses, g.priority, g.history, _bury.state,
      coalesce(_bury.reason, _bury.state), g.fingerprint
    from gone as g
  )
  select array_agg(g.id), array_agg(g.fingerprint), bool_or(g.fingerprint is not null),
    array_agg(g.lane) filter (where g.lane is not null and (g.run > 0 or g.turn > 0)),
    array_agg(g.queue_id) filter (where g.lane is not null and (g.run > 0 or g.turn > 0)),
    array_agg(g.turn) filter (where g.lane is not null and (g.run > 0 or g.turn > 0))
  into v_buried, v_prints, v_any, v_lanes, v_queues, v_turns from gone as g;
  if v_lanes is not null then
    perform dibs._wake_groups(v_lanes, v_queues, v_turns, at);
  end if;
  if v_any then
    perform dibs._free_fingerprints(v_prints, v_buried);
  end if;
  if v_buried is not null then
    perform dibs._note_unrun(v_buried, _bury.state, at);
  end if;
  return query select unnest(v_buried);
end
$$;

comment on function dibs._bury is 'End those of the jobs that wait; `ids` must be sorted. Returns the ids it ended.';

create or replace function dibs._no_such_job(id uuid) returns void
language plpgsql stable
as $$
begin
  raise exception using errcode = 'DI002', message = format('there is no job %s', id),
    hint = 'it was never committed, or its retention is over and it was pruned';
end
$$;

comment on function dibs._no_such_job is 'Raise DI002.';
