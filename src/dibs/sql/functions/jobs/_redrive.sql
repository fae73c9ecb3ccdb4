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

create or replace function dibs._find_dead(
  queues integer[], kind text, state text, reason text, ended_after timestamptz, ended_before timestamptz, after uuid, max integer)
returns uuid[]
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  c_most constant integer := 100000;
  v_most integer;
  v_looked bigint;
  v_last timestamptz;
  v_ids uuid[];
begin
  -- Few at first: a filter mostly matches those that ended first.
  foreach v_most in array array[_find_dead.max, greatest(_find_dead.max, c_most / greatest(cardinality(queues), 1))] loop
    with looked as materialized (
      select d.* from unnest(queues) as q (id)
      cross join lateral (
        select d.id, d.ended_at, d.state from dibs.dead as d
        where d.queue_id = q.id and d.ended_at < coalesce(_find_dead.ended_before, 'infinity')
          and (d.ended_at, d.id) > (coalesce(_find_dead.ended_after, '-infinity'), coalesce(_find_dead.after, dibs._nil_id()))
        order by d.ended_at, d.id limit v_most) as d
      order by d.ended_at, d.id limit v_most
    ), chosen as materialized (
      select c.id from looked as c
      cross join lateral (
        select from dibs.job as j where j.id = c.id and j.kind = coalesce(_find_dead.kind, j.kind) offset 0) as j
      cross join lateral (
        select from dibs.dead as d where d.id = c.id and (_find_dead.reason is null or d.reason like _find_dead.reason)
        offset 0) as d
      -- Somebody wanted the cancelled to end: a filter brings them back only if it asks for them.
      where case when _find_dead.state is null then c.state <> 'cancelled' else c.state = _find_dead.state end
      limit _find_dead.max
    )
    select array(select c.id from chosen as c), (select count(*) from looked), (select max(l.ended_at) from looked as l)
    into v_ids, v_looked, v_last;
    exit when cardinality(v_ids) = _find_dead.max or v_looked < v_most;
  end loop;
  if v_ids = '{}' and v_looked = v_most then
    raise exception using errcode = 'DI010',
      message = format('none of the first %s dead jobs matches, up to those that ended at %s', v_looked, dibs._utc(v_last)),
      hint = format('name a queue, or go on from there: ended_after => %L', v_last);
  end if;
  return v_ids;
end
$$;

comment on function dibs._find_dead is
'Find dead jobs that match a filter, those that ended first, after a place. It looks at 100,000 or so, and refuses a filter that
none of them matches rather than answer that there is none.';

create or replace function dibs._revive(ids uuid[], rate double precision, delay interval, at timestamptz)
returns table (id uuid, in_queue text, of_kind text, was text, cause text, answer text, ended_at timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
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
  select c.id, c.name, c.kind, c.state, c.reason, case when c.taken then 'duplicate' else 'redriven' end, c.ended_at
  from chosen as c order by c.place;
  perform dibs._add_pointers(ids, at);
  -- A dead job may have been edited, or moved to a queue that has never had its priority.
  perform dibs._note_priorities(array_agg(r.queue_id), array_agg(r.priority)) from unnest(ids) as k (id)
  cross join lateral (select r.queue_id, r.priority from dibs.ready as r where r.id = k.id offset 0) as r
  join dibs.queue as q on q.id = r.queue_id and q.priority <> r.priority having count(*) > 0;
end
$$;

comment on function dibs._revive is
'Bring dead jobs back that the caller has locked after it retook their keys, in that order, the first after `delay` and `rate` of them per second, and none before it was due; those whose dedup key
another job holds now stay dead.';
