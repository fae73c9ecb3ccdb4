-- What redrive accepts, and how dead jobs come back.

create or replace function dibs._check_redrive(
  ids uuid[], queue text, state text, max integer, rate double precision, delay interval)
returns void
language plpgsql stable
as $$
declare
  v_states constant text[] := '{failed,exhausted,expired,cancelled}'::text[];
begin
  if queue is not null then
    perform dibs._queue_number(queue);
  end if;
  if state <> all (v_states) then
    perform dibs._refuse_unknown('DI010', format('a dead job is never %L', state), state, v_states,
      'the dead states are ' || array_to_string(v_states, ', '));
  end if;
  perform dibs._check_count('redrive', max), dibs._check_items('redrive', ids, 'batch');
  if rate <= 0 or max / rate > 31536000 then
    raise exception using errcode = 'DI010',
      message = format('a rate of %s jobs per second makes no sense for %s jobs', rate, max),
      hint = 'give a rate above 0 at which they are all due within a year';
  end if;
  perform dibs._check_delay('redrive', delay);
end
$$;

comment on function dibs._check_redrive is 'Refuse a redrive that makes no sense, with a sentence that says why.';

create or replace function dibs._revive(ids uuid[], rate double precision, delay interval, at timestamptz)
returns table (id uuid, in_queue text, of_kind text, was text, cause text, answer text)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  perform dibs._retake_fingerprints(ids, at);
  return query
  with chosen as materialized (
    select d.*, q.name, q.ring, j.kind, j.group_name, j.cost, coalesce(j.ttl, q.ttl) as alive,
      case when j.deadline > at then j.deadline end as deadline,
      row_number() over (order by k.n) as place,
      dibs._own_lease(j.lease, j.lease_growth, j.lease_cap, q, 1) as own_lease,
      d.fingerprint is not null and f.id is distinct from d.id and j.dedup_scope is distinct from 'window' as taken
    from unnest(ids) with ordinality as k (id, n)
    join dibs.dead as d on d.id = k.id
    join dibs.job as j on j.id = d.id
    join dibs.queue as q on q.id = d.queue_id
    left join dibs.fingerprint as f on f.hash = d.fingerprint
  ), gone as (
    delete from dibs.dead as d using chosen as c where d.id = c.id and not c.taken
    returning c.*, greatest(
      c.due_at, at + delay + coalesce((c.place - 1) / rate * interval '1 second', interval '0')) as due
  ), waiting as (
    insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease,
      history, fingerprint, lane, cost)
    select g.id, g.due, dibs._expiry(g.due, g.alive, g.deadline), g.queue_id, g.run, 0, 0, g.priority,
      g.ring and g.place = 1, g.own_lease, g.history, g.fingerprint, dibs._lane_of(g.queue_id, g.group_name), g.cost
    from gone as g
  )
  select c.id, c.name, c.kind, c.state, c.reason, case when c.taken then 'duplicate' else 'redriven' end
  from chosen as c order by c.place;
  perform dibs._add_pointers(ids, at);
end
$$;

comment on function dibs._revive is
'Bring dead jobs back, in that order, the first after `delay` and `rate` of them per second, and none before it was due; those whose dedup key
another job holds now stay dead.';
