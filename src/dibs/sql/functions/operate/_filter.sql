-- Which jobs an operator means.

create or replace function dibs._read_filter(verb text, filter jsonb, allowed text[]) returns dibs.job_filter
language plpgsql stable
as $$
declare
  v_filter dibs.job_filter;
  v_other text;
begin
  if coalesce(jsonb_typeof(filter), 'null') <> 'object' then
    raise exception using errcode = 'DI010', message = format('%s takes a filter that is a JSON object', verb),
      hint = 'pass {"queue": "mail"}, or {} for all';
  end if;
  perform dibs._check_json_keys('DI010', 'filter', 'condition', filter, dibs._field_names('dibs.job_filter'));
  v_filter := jsonb_populate_record(null::dibs.job_filter, filter);
  v_other := (select s from unnest(v_filter.states) as s where s <> all (allowed) limit 1);
  if v_other is not null then
    perform dibs._refuse_unknown('DI010', format('%s takes no job that is %L', verb, v_other), v_other, allowed,
      'it takes those that are ' || array_to_string(allowed, ', '));
  end if;
  if v_filter.dedup_key is not null and v_filter.queue is null then
    raise exception using errcode = 'DI010', message = 'a dedup key belongs to a queue, and the filter names none',
      hint = 'give "queue" as well';
  end if;
  perform dibs._check_items(verb, v_filter.ids, 'batch');
  v_filter.states := coalesce(v_filter.states, allowed);
  return v_filter;
end
$$;

comment on function dibs._read_filter is
'A filter from JSON, for a verb that takes jobs in those states; refuses what makes no sense.';

create or replace function dibs._max_scanned(filter dibs.job_filter default null) returns integer
language sql immutable parallel safe
return case when filter.failure is null then 10000 else 2000 end;

comment on function dibs._max_scanned is 'How many jobs one step of an operator''s verb looks at: it ends soon, however many there are. To group an error takes a while.';

create or replace function dibs._may_show() returns boolean
language sql stable
begin atomic
  -- Whether the login inherits what its roles may is no matter: it can take them.
  select coalesce(bool_or(pg_has_role(session_user, a.grantee, 'member')), false)
  from pg_catalog.pg_proc as p cross join aclexplode(p.proacl) as a
  where p.oid = 'dibs.show(uuid)'::regprocedure and a.grantee <> 0;
end;

comment on function dibs._may_show is 'Whether the caller may see payloads and whole errors; others see the first line of an error.';

create or replace function dibs._next_candidates(filter dibs.job_filter, after uuid, upto uuid, at timestamptz, most integer)
returns table (id uuid, queue_id integer, state text, reason text, ended_at timestamptz)
language sql stable
begin atomic
  select t.* from (
    (select r.id, r.queue_id, case when r.due_at > at then 'scheduled' else 'ready' end as state, null::text, null::timestamptz
     from dibs.ready as r
     where filter.states && '{scheduled,ready}'::text[] and r.id > after and r.id < upto
       and (filter.ids is null or r.id = any (filter.ids)) order by r.id limit most)
    union all
    (select b.id, b.queue_id, 'blocked', null, null from dibs.blocked as b
     where 'blocked' = any (filter.states) and b.id > after and b.id < upto
       and (filter.ids is null or b.id = any (filter.ids)) order by b.id limit most)
    union all
    (select l.id, l.queue_id, 'running', null, null from dibs.lease as l
     where 'running' = any (filter.states) and l.id > after and l.id < upto
       and (filter.ids is null or l.id = any (filter.ids)) order by l.id limit most)
    union all
    (select d.id, d.queue_id, d.state, d.reason, d.ended_at from dibs.dead as d
     where filter.states && '{failed,exhausted,expired,cancelled}'::text[] and d.id > after and d.id < upto
       and (filter.ids is null or d.id = any (filter.ids)) order by d.id limit most)
    union all
    (select j.id, j.queue_id, 'succeeded', null, null from dibs.job as j
     where 'succeeded' = any (filter.states) and j.id > after and j.id < upto
       and (filter.ids is null or j.id = any (filter.ids)) order by j.id limit most)
  ) as t (id, queue_id, state, reason, ended_at)
  -- A job with a ticket may be here twice, and what its ticket says counts: it comes first, so that no cut parts the two.
  order by t.id, t.state = 'succeeded' limit most;
end;

comment on function dibs._next_candidates is
'The next `most` jobs after an id, by their tickets; one that is here as succeeded may have a ticket.';

create or replace function dibs._walk_back(filter dibs.job_filter, after uuid, upto uuid, at timestamptz, most integer)
returns table (id uuid, queue_id integer, state text, reason text, ended_at timestamptz)
language sql stable
begin atomic
  select t.* from (
    (select r.id, r.queue_id, case when r.due_at > at then 'scheduled' else 'ready' end as state, null::text, null::timestamptz
     from dibs.ready as r
     where filter.states && '{scheduled,ready}'::text[] and r.id > after and r.id < upto
       and (filter.ids is null or r.id = any (filter.ids)) order by r.id desc limit most)
    union all
    (select b.id, b.queue_id, 'blocked', null, null from dibs.blocked as b
     where 'blocked' = any (filter.states) and b.id > after and b.id < upto
       and (filter.ids is null or b.id = any (filter.ids)) order by b.id desc limit most)
    union all
    (select l.id, l.queue_id, 'running', null, null from dibs.lease as l
     where 'running' = any (filter.states) and l.id > after and l.id < upto
       and (filter.ids is null or l.id = any (filter.ids)) order by l.id desc limit most)
    union all
    (select d.id, d.queue_id, d.state, d.reason, d.ended_at from dibs.dead as d
     where filter.states && '{failed,exhausted,expired,cancelled}'::text[] and d.id > after and d.id < upto
       and (filter.ids is null or d.id = any (filter.ids)) order by d.id desc limit most)
    union all
    (select j.id, j.queue_id, 'succeeded', null, null from dibs.job as j
     where 'succeeded' = any (filter.states) and j.id > after and j.id < upto
       and (filter.ids is null or j.id = any (filter.ids)) order by j.id desc limit most)
  ) as t (id, queue_id, state, reason, ended_at)
  order by t.id desc, t.state = 'succeeded' limit most;
end;

comment on function dibs._walk_back is 'The same backwards, from another id on.';

create or replace function dibs._match_next(
  filter dibs.job_filter, after uuid, before uuid, max integer, at timestamptz, most integer, backwards boolean,
  out ids uuid[], out looked bigint, out next uuid)
language plpgsql stable
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_after uuid := greatest(after, dibs._id_floor(filter.enqueued_after), dibs._nil_id());
  v_upto uuid := least(before, dibs._id_floor(filter.enqueued_before), 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  v_queue integer := case when filter.queue is not null then dibs._queue_number(filter.queue) end;
  v_queues integer[] := dibs._queue_numbers(v_queue);
  v_print bytea := dibs._fingerprint_of(v_queue, filter.dedup_key);
  v_mine integer[] := case when dibs._is_confined() then dibs.confined_to() end;
  v_whole boolean := dibs._may_show();
  v_found uuid[];
  v_last uuid;
begin
  with seen as materialized (
    select s.* from dibs._next_candidates(filter, v_after, v_upto, at, most) as s where not backwards
    union all
    select s.* from dibs._walk_back(filter, v_after, v_upto, at, most) as s where backwards
  ), found as materialized (
    select s.id from seen as s
    cross join lateral (select j.* from dibs.job as j where j.id = s.id offset 0) as j
    left join lateral (
      select a.error from dibs.attempt as a where a.id = s.id and a.error is not null order by a.run desc limit 1
    ) as e on s.reason is null and num_nonnulls(filter.reason, filter.failure) > 0
    left join lateral (
      select a.ended_at from dibs.attempt as a where a.id = s.id and a.outcome is null order by a.run desc limit 1
    ) as n on s.ended_at is null and num_nonnulls(filter.ended_after, filter.ended_before) > 0
    where s.state = any (filter.states)
      and (s.state <> 'succeeded' or not (
        exists (select from dibs.ready as r where r.id = s.id) or exists (select from dibs.blocked as b where b.id = s.id)
        or exists (select from dibs.lease as l where l.id = s.id) or exists (select from dibs.dead as d where d.id = s.id)))
      and (v_mine is null or s.queue_id = any (v_mine))
      and (filter.queue is null or s.queue_id = any (v_queues))
      and (filter.kind is null or j.kind = filter.kind)
      and (filter."group" is null or j.group_name = filter."group")
      and (v_print is null or j.fingerprint = v_print)
      and (filter.payload is null or j.payload @> filter.payload)
      and (filter.headers is null or j.headers @> filter.headers)
      and (filter.ended_after is null or coalesce(s.ended_at, n.ended_at) >= filter.ended_after)
      and (filter.ended_before is null or coalesce(s.ended_at, n.ended_at) < filter.ended_before)
      and (filter.reason is null
        or case when v_whole then coalesce(s.reason, e.error) else split_part(coalesce(s.reason, e.error), E'\n', 1) end like filter.reason)
      and (filter.failure is null or dibs._failure_fingerprint(coalesce(s.reason, e.error)) = filter.failure)
  )
  select array(select f.id from found as f order by f.id), (select count(*) from seen),
    case when backwards then (select s.id from seen as s order by s.id limit 1)
      else (select s.id from seen as s order by s.id desc limit 1) end
  into v_found, looked, v_last;
  ids := array(select k from unnest(v_found) as k order by case when not backwards then k end, k desc limit max);
  next := case when cardinality(v_found) > max then ids[max] when looked = most then v_last end;
end
$$;

comment on function dibs._match_next is
'The jobs between two ids that a filter chooses, `max` at most of the next `most`, in order or backwards: how many were looked at, and where the next
step goes on; null if this was the last.';

create or replace function dibs._find_matching(
  filter dibs.job_filter, place uuid, max integer, at timestamptz, backwards boolean, out ids uuid[], out looked bigint, out next uuid)
language plpgsql stable
as $$
declare
  v_most integer := least(2 * max, dibs._max_scanned(filter));  -- Few at first: mostly that is enough.
  v_step record;
begin
  ids := '{}';
  looked := 0;
  next := place;
  loop
    select m.* into v_step
    from dibs._match_next(filter, case when not backwards then next end, case when backwards then next end, max - cardinality(ids), at,
      v_most, backwards) as m;
    ids := ids || v_step.ids;
    looked := looked + v_step.looked;
    next := v_step.next;
    v_most := dibs._max_scanned(filter) - looked;
    exit when next is null or cardinality(ids) >= max or v_most <= 0;
  end loop;
end
$$;

comment on function dibs._find_matching is
'The next jobs that a filter chooses, after an id or backwards before it: `max` at most, or as many as one step can look at.';
