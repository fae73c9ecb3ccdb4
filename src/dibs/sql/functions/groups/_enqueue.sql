-- Lanes and their turns, as enqueue and the exits use them.

create or replace function dibs._lane_of(queue_id integer, name text) returns uuid
language sql immutable strict parallel safe
return encode(substring(sha256(convert_to(queue_id || ':' || name, 'UTF8')) for 16), 'hex')::uuid;

comment on function dibs._lane_of is 'The lane of a group: the same for the same queue and name.';

create or replace function dibs._token_time(rate double precision, n double precision) returns interval
language sql immutable parallel safe
return n / rate * interval '1 second';

comment on function dibs._token_time is 'How long a rate takes to let so many jobs through.';

create or replace function dibs._tokens(rate double precision, burst integer, tat timestamptz, at timestamptz) returns integer
language sql immutable parallel safe
return case when rate is null then 2147483647 else greatest(0, floor(
  burst - extract(epoch from greatest(tat, at) - at)::double precision * rate + 0.000001))::integer end;

comment on function dibs._tokens is
'How many jobs a rate lets start now: the burst, less what has not been caught up with (a GCRA, exact in any order).';

create or replace function dibs._default_burst(rate double precision) returns integer
language sql immutable parallel safe
return least(ceil(rate), 1000000)::integer;

comment on function dibs._default_burst is 'The burst of a rate that names none: one second''s worth.';

create or replace function dibs._open_lanes(queues integer[], names text[], dues timestamptz[], at timestamptz) returns void
language plpgsql volatile
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_left record;
  v_new uuid[];
  v_there uuid[];
begin
  select array_agg(k.lane order by k.lane) as lanes, array_agg(k.queue_id order by k.lane) as queues,
    array_agg(k.name order by k.lane) as names, array_agg(k.due order by k.lane) as dues
  into v_left
  from (
    select dibs._lane_of(a.queue_id, a.name) as lane, a.queue_id, a.name, min(a.due) as due
    from unnest(queues, names, dues) as a (queue_id, name, due) where a.name is not null group by a.queue_id, a.name
  ) as k;
  -- A lane that is there may be collected between our insert and our lock: then it is made again.
  while cardinality(v_left.lanes) > 0 loop
    with new as (
      insert into dibs.lane (id, queue_id, name, weight, concurrency, rate, burst)
      select a.lane, a.queue_id, a.name, coalesce(p.weight, 1), p.concurrency, p.rate, p.burst
      from unnest(v_left.lanes, v_left.queues, v_left.names) with ordinality as a (lane, queue_id, name, n)
      left join lateral (
        select p.* from dibs.group_policy as p
        where p.queue_id = a.queue_id and p.lane in (a.lane, '00000000-0000-0000-0000-000000000000')
        order by p.lane desc limit 1) as p on true
      order by a.n
      on conflict do nothing
      returning id, concurrency
    ), begun as (
      insert into dibs.turn (queue_id, lane, place, base_at, swept_at, units)
      select a.queue_id, a.lane, greatest(a.due, at), a.due, clock_timestamp(), coalesce(n.concurrency, 0)
      from new as n
      join unnest(v_left.lanes, v_left.queues, v_left.dues) as a (lane, queue_id, due) on a.lane = n.id
      returning lane
    )
    select array_agg(b.lane) into v_new from begun as b;
    exit when cardinality(v_new) = cardinality(v_left.lanes);

    select array_agg(k.id) into v_there from (
      select g.id from (
        select a.lane from unnest(v_left.lanes) with ordinality as a (lane, n)
        where not exists (select from unnest(v_new) as d (lane) where d.lane = a.lane) order by a.n
      ) as a
      cross join lateral (select g.id from dibs.lane as g where g.id = a.lane for key share) as g
    ) as k;
    perform dibs._ping_lanes(array_agg(a.lane), array_agg(a.queue_id), array_agg(a.due), at,
      current_setting('transaction_isolation') <> 'read committed')
    from unnest(v_left.lanes, v_left.queues, v_left.dues) as a (lane, queue_id, due)
    where exists (select from unnest(v_there) as d (lane) where d.lane = a.lane);

    select array_agg(a.lane order by a.lane) as lanes, array_agg(a.queue_id order by a.lane) as queues,
      array_agg(a.name order by a.lane) as names, array_agg(a.due order by a.lane) as dues
    into v_left
    from unnest(v_left.lanes, v_left.queues, v_left.names, v_left.dues) as a (lane, queue_id, name, due)
    where not exists (select from unnest(v_new || v_there) as d (lane) where d.lane = a.lane);
  end loop;
end
$$;

comment on function dibs._open_lanes is
'See that the groups which get a ticket have a lane and, by the time it is due, a turn: at `at` at the earliest, for
below are the floors of claims. The lanes stay locked, shared, until the end of the transaction, so that nobody collects them before
the ticket can be seen.';

create or replace function dibs._ping_lanes(lanes uuid[], queues integer[], dues timestamptz[], at timestamptz, always boolean) returns void
language sql volatile
begin atomic
  insert into dibs.turn (queue_id, lane, place, base_at, ping)
  select a.queue_id, a.lane, greatest(a.due, at), a.due, true
  from unnest(lanes, queues, dues) as a (lane, queue_id, due)
  left join lateral (
    select t.place, t.base_at, t.next from dibs.turn as t where t.lane = a.lane order by t.n desc limit 1) as t on true
  -- A turn that returned by itself has no base and looks at everything; one that waits for a certain job is kept waiting.
  where always or t.place is null
    or t.next is null and (t.place > greatest(a.due, at) or coalesce(t.base_at, '-infinity') > a.due);
end;

comment on function dibs._ping_lanes is 'Add a turn to lanes whose newest turn would come too late for a ticket due then.';

create or replace function dibs._return_turns(
  lanes uuid[], turns smallint[], queues integer[], nexts uuid[], dues timestamptz[], at timestamptz)
returns void
language sql volatile
begin atomic
  insert into dibs.turn (queue_id, lane, place, freed_at, units, next, ring)
  select r.queue_id, r.lane, r.place, at, r.units, r.next, q.ring and r.place <= at + interval '1 minute'
  from (
    select t.queue_id, t.lane, greatest(case when t.turn = 2 then t.due end, at) as place,
      case when t.turn = 2 then t.next end as next, count(*)::integer as units
    from unnest(lanes, turns, queues, nexts, dues) as t (lane, turn, queue_id, next, due)
    where t.turn > 0 group by 1, 2, 3, 4
  ) as r
  join dibs.queue as q on q.id = r.queue_id;
end;

comment on function dibs._return_turns is
'Put back the turns that left with leases: at the end of the rotation, or, where the order is strict and the job goes on
waiting, at that job''s time and for it alone.';

create or replace function dibs._open_groups(jobs jsonb, at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_asked record;
begin
  select array_agg(q.id) as queues, array_agg(e.job ->> 'group') as names,
    array_agg(greatest(coalesce((e.job ->> 'due_at')::timestamptz, at + (e.job ->> 'delay')::interval), at)) as dues
  into v_asked
  from jsonb_array_elements(jobs) as e (job) join dibs.queue as q on q.name = e.job ->> 'queue'
  where e.job ->> 'group' is not null;
  perform dibs._add_priorities(jobs);
  perform dibs._open_lanes(v_asked.queues, v_asked.names, v_asked.dues, at);
end
$$;

comment on function dibs._open_groups is 'Open the lanes of a batch of jobs.';

create or replace function dibs._add_priorities(jobs jsonb) returns void
language plpgsql volatile
as $$
declare
  v_new record;
begin
  for v_new in
    -- What is sidelined has priority 0.
    select q.id, array_agg(distinct coalesce((e.job ->> 'priority')::smallint, q.priority))
      || case when q.when_full = 'sideline' then '{0}'::smallint[] else '{}' end as levels
    from jsonb_array_elements(jobs) as e (job) join dibs.queue as q on q.name = e.job ->> 'queue'
    where e.job ->> 'group' is not null group by q.id order by q.id
  loop
    -- At most eleven times in a queue's life.
    update dibs.queue as q
    set group_priorities = array(select distinct l from unnest(q.group_priorities || v_new.levels) as l where l between 0 and 10 order by l desc)
    where q.id = v_new.id and not q.group_priorities @> v_new.levels;
  end loop;
end
$$;

comment on function dibs._add_priorities is 'Note the priorities that jobs with a group have in their queue.';

create or replace function dibs._wake_lanes(lanes uuid[], queues integer[], turns smallint[], at timestamptz) returns void
language sql volatile
begin atomic
  -- A group in strict order may have been waiting for the job that ended.
  insert into dibs.turn (queue_id, lane, place, ping)
  select distinct a.queue_id, a.lane, at, true
  from unnest(lanes, queues) as a (lane, queue_id)
  cross join lateral (
    select t.n from dibs.turn as t where t.lane = a.lane and t.next is not null order by t.n desc limit 1) as t;
  select dibs._return_turns(lanes, turns, queues, null, null, at);
end;

comment on function dibs._wake_lanes is
'Let groups go on that waited for a job which was cancelled or has expired; and put the turns back that such jobs held.';
