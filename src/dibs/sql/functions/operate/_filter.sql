-- Choose jobs by a filter, a bounded number of rows at a time.

create or replace function dibs._may_show() returns boolean
language sql stable
begin atomic
  -- Membership counts, inherited or not: the login can SET ROLE to any role it is a member of.
  select coalesce(bool_or(pg_has_role(session_user, a.grantee, 'member')), false)
  from pg_catalog.pg_proc as p cross join aclexplode(p.proacl) as a
  where p.oid = 'dibs.show(uuid)'::regprocedure and a.grantee <> 0;
end;

comment on function dibs._may_show is
'True if the caller may see payloads and whole errors. Other callers see only the first line of an error.';

create or replace function dibs._read_filter(verb text, filter jsonb, allowed text[]) returns dibs.job_filter
language plpgsql stable
as $$
declare
  v_filter dibs.job_filter;
  v_refused text;
begin
  if coalesce(jsonb_typeof(filter), 'null') <> 'object' then
    raise exception using errcode = 'DI010', message = format('%s takes a filter that is a JSON object', verb),
      hint = 'pass {"queue": "mail"}, or {} for all';
  end if;
  perform dibs._check_json_keys('DI010', 'filter', 'condition', filter, dibs._field_names('dibs.job_filter'));
  v_filter := jsonb_populate_record(null::dibs.job_filter, filter);
  v_refused := (select s from unnest(v_filter.states) as s where s <> all (allowed) limit 1);
  if v_refused is not null then
    perform dibs._refuse_unknown('DI010', format('%s takes no job that is %L', verb, v_refused), v_refused, allowed,
      'it takes those that are ' || array_to_string(allowed, ', '));
  end if;
  if v_filter.dedup_key is not null and v_filter.queue is null then
    raise exception using errcode = 'DI010', message = 'a dedup key belongs to a queue, and the filter names none',
      hint = 'give "queue" as well';
  end if;
  if num_nonnulls(v_filter.payload, v_filter.headers) > 0 and not dibs._may_show() then
    raise exception using errcode = '42501',
      message = format('role %I may not see payloads, nor look for jobs by them', session_user),
      hint = 'leave payload and headers out of the filter';
  end if;
  perform dibs._check_items(verb, v_filter.ids, 'batch');
  v_filter.states := coalesce(v_filter.states, allowed);
  return v_filter;
end
$$;

comment on function dibs._read_filter is
'Read a filter from JSON for a verb that takes jobs in the states `allowed`. Raise DI010 for an unknown condition, a
state that is not allowed, or a dedup key without its queue; raise 42501 for a payload or headers if the caller may not
see them. A filter without states gets all that are allowed.';

create or replace function dibs._max_scanned(filter dibs.job_filter default null) returns integer
language sql immutable parallel safe
return case when filter.failure is null then 10000 else 2000 end;

comment on function dibs._max_scanned is
'The number of jobs that one step of a verb on many jobs may read, so that it ends soon. Fewer with a condition on
`failure`: to group an error by its text takes a while.';

create or replace function dibs._next_candidates(
  filter dibs.job_filter, after uuid, before uuid, at timestamptz, max_scanned integer, newest_first boolean)
returns table (id uuid, queue_id integer, state text, reason text, ended_at timestamptz)
language sql stable
begin atomic
  -- Each ORDER BY has two keys: with newest_first `id desc` decides, without it that key is always null. PostgreSQL
  -- inlines this function into the custom plan of _match_next, where newest_first is a constant. It drops the key that
  -- has no effect, and reads the index in order.
  select t.* from (
    (select r.id, r.queue_id, case when r.due_at > at then 'scheduled' else 'ready' end, null::text, null::timestamptz
     from dibs.ready as r
     where filter.states && '{scheduled,ready}'::text[] and r.id > after and r.id < before
       and (filter.ids is null or r.id = any (filter.ids))
     order by case when newest_first then r.id end desc, r.id limit max_scanned)
    union all
    (select b.id, b.queue_id, 'blocked', null, null from dibs.blocked as b
     where 'blocked' = any (filter.states) and b.id > after and b.id < before
       and (filter.ids is null or b.id = any (filter.ids))
     order by case when newest_first then b.id end desc, b.id limit max_scanned)
    union all
    (select l.id, l.queue_id, 'running', null, null from dibs.lease as l
     where 'running' = any (filter.states) and l.id > after and l.id < before
       and (filter.ids is null or l.id = any (filter.ids))
     order by case when newest_first then l.id end desc, l.id limit max_scanned)
    union all
    (select d.id, d.queue_id, d.state, d.reason, d.ended_at from dibs.dead as d
     where filter.states && '{failed,exhausted,expired,cancelled}'::text[] and d.id > after and d.id < before
       and (filter.ids is null or d.id = any (filter.ids))
     order by case when newest_first then d.id end desc, d.id limit max_scanned)
    union all
    (select j.id, j.queue_id, 'succeeded', null, null from dibs.job as j
     where 'succeeded' = any (filter.states) and j.id > after and j.id < before
       and (filter.ids is null or j.id = any (filter.ids))
     order by case when newest_first then j.id end desc, j.id limit max_scanned)
  ) as t (id, queue_id, state, reason, ended_at)
  -- A job with a ticket can appear twice, the second time as `succeeded` with its row of `job`. The ticket comes first,
  -- so that it stays if LIMIT cuts between the two. The caller drops the other.
  order by case when newest_first then t.id end desc, t.id, t.state = 'succeeded' limit max_scanned;
end;

comment on function dibs._next_candidates is
'Return the next `max_scanned` rows with an id between `after` and `before`, both excluded, in the order of their ids or
newest first. It reads each table that can hold a state of the filter; for `succeeded` that is `job`. The caller checks
the state: tickets of one table may be in other states, and a `succeeded` job may still have a ticket.';

create or replace function dibs._id_range(
  filter dibs.job_filter, place uuid, newest_first boolean, out after uuid, out before uuid)
language plpgsql immutable
as $$
begin
  -- greatest and least ignore nulls.
  after := greatest(case when not newest_first then place end, dibs._id_floor(filter.enqueued_after), dibs._nil_id());
  before := least(case when newest_first then place end, dibs._id_floor(filter.enqueued_before),
    'ffffffff-ffff-ffff-ffff-ffffffffffff');
end
$$;

comment on function dibs._id_range is
'The ids, both excluded, between which the jobs lie that were enqueued in the time of a filter and come next after
`place`, or newest first before it. A null place is the start.';

create or replace function dibs._read_attempts(id uuid, wants_error boolean, wants_success boolean)
returns table (last_error text, succeeded_at timestamptz)
language sql stable
begin atomic
  -- This function is inlined, and OFFSET keeps PostgreSQL from evaluating a column once for each of its uses.
  select
    case when wants_error then (
      select a.error from dibs.attempt as a where a.id = _read_attempts.id and a.error is not null
      order by a.run desc limit 1) end,
    -- The outcome of a success is null.
    case when wants_success then (
      select a.ended_at from dibs.attempt as a where a.id = _read_attempts.id and a.outcome is null
      order by a.run desc limit 1) end
  offset 0;
end;

comment on function dibs._read_attempts is
'Return the error of the last failure of a job, and the time of its success; each only if it is wanted.';

create or replace function dibs._match_next(
  filter dibs.job_filter, place uuid, max integer, at timestamptz, max_scanned integer, newest_first boolean,
  out ids uuid[], out looked bigint, out next uuid)
language plpgsql stable
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_range record := dibs._id_range(filter, place, newest_first);
  v_queue integer := case when filter.queue is not null then dibs._queue_number(filter.queue) end;
  v_queues integer[] := dibs._queue_numbers(v_queue);
  v_fingerprint bytea := dibs._fingerprint_of(v_queue, filter.dedup_key);
  v_allowed integer[] := case when dibs._is_confined() then dibs.confined_to() end;
  v_may_show boolean := dibs._may_show();
  v_matching uuid[];
  v_last uuid;
begin
  with candidate as materialized (
    select c.* from dibs._next_candidates(
      filter, v_range.after, v_range.before, at, max_scanned, newest_first) as c
  ), described as (
    select c.id, c.queue_id, c.state, j.kind, j.group_name, j.fingerprint, j.payload, j.headers,
      coalesce(c.reason, a.last_error) as error, coalesce(c.ended_at, a.succeeded_at) as ended_at
    from candidate as c
    cross join lateral (select j.* from dibs.job as j where j.id = c.id offset 0) as j
    cross join lateral dibs._read_attempts(c.id,
      wants_error => c.reason is null and num_nonnulls(filter.reason, filter.failure) > 0,
      wants_success => c.ended_at is null and num_nonnulls(filter.ended_after, filter.ended_before) > 0) as a
  ), matching as materialized (
    select d.id from described as d
    where d.state = any (filter.states)
      and (v_allowed is null or d.queue_id = any (v_allowed))
      and (filter.queue is null or d.queue_id = any (v_queues))
      and (filter.kind is null or d.kind = filter.kind)
      and (filter."group" is null or d.group_name = filter."group")
      and (v_fingerprint is null or d.fingerprint = v_fingerprint)
      and (filter.payload is null or d.payload @> filter.payload)
      and (filter.headers is null or d.headers @> filter.headers)
      and (filter.ended_after is null or d.ended_at >= filter.ended_after)
      and (filter.ended_before is null or d.ended_at < filter.ended_before)
      and (filter.reason is null
        or case when v_may_show then d.error else split_part(d.error, E'\n', 1) end like filter.reason)
      and (filter.failure is null or dibs._failure_fingerprint(d.error) = filter.failure)
      -- A job has succeeded if it has no ticket.
      and (d.state <> 'succeeded' or not (
        exists (select from dibs.ready as r where r.id = d.id)
        or exists (select from dibs.blocked as b where b.id = d.id)
        or exists (select from dibs.lease as l where l.id = d.id)
        or exists (select from dibs.dead as t where t.id = d.id)))
  )
  select array(select m.id from matching as m order by case when newest_first then m.id end desc, m.id),
    (select count(*) from candidate),
    (select c.id from candidate as c order by case when not newest_first then c.id end desc, c.id limit 1)
  into v_matching, looked, v_last;
  ids := v_matching[:max];
  next := case
    when cardinality(v_matching) > max then ids[max]  -- More of these candidates match.
    when looked = max_scanned then v_last end;  -- There may be more candidates.
end
$$;

comment on function dibs._match_next is
'Read the next `max_scanned` candidates after `place` in the order of ids, or newest first before it; a null place is
the start. Return the first `max` that match. `looked` is how many were read, `next` the place to go on from, null after
the last. A job is matched by the reason of its dead ticket, or without one by the error of its last failure; and by the
end of its dead ticket, or without one by the time of its success.';

create or replace function dibs._find_matching(
  filter dibs.job_filter, place uuid, max integer, at timestamptz, newest_first boolean,
  out ids uuid[], out looked bigint, out next uuid)
language plpgsql stable
as $$
declare
  v_max_scanned integer := least(2 * max, dibs._max_scanned(filter));  -- Few at first: mostly that is enough.
  v_found record;
begin
  ids := '{}';
  looked := 0;
  next := place;
  loop
    select m.* into v_found
    from dibs._match_next(filter, next, max - cardinality(ids), at, v_max_scanned, newest_first) as m;
    ids := ids || v_found.ids;
    looked := looked + v_found.looked;
    next := v_found.next;
    v_max_scanned := dibs._max_scanned(filter) - looked;
    exit when next is null or cardinality(ids) >= max or v_max_scanned <= 0;
  end loop;
end
$$;

comment on function dibs._find_matching is
'Find up to `max` jobs that match a filter, after `place` in the order of ids, or newest first before it. Reads at most
`_max_scanned` jobs, so fewer may come back while there are more: go on from `next` until it is null.';
