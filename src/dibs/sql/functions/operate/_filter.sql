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
  perform dibs._check_names('DI010', 'filter', 'condition', filter, dibs._names_of('dibs.job_filter'));
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

create or replace function dibs._most_looked_at() returns integer
language sql immutable parallel safe
return 10000;

comment on function dibs._most_looked_at is 'How many jobs one step of an operator''s verb looks at: it ends soon, however many there are.';

create or replace function dibs._has_ticket(id uuid) returns boolean
language sql stable
return coalesce(
  (select true from dibs.ready as r where r.id = _has_ticket.id),
  (select true from dibs.blocked as b where b.id = _has_ticket.id),
  (select true from dibs.lease as l where l.id = _has_ticket.id),
  (select true from dibs.dead as d where d.id = _has_ticket.id), false);

comment on function dibs._has_ticket is 'Whether a job has not succeeded.';

create or replace function dibs._ended_at(id uuid, dead_at timestamptz) returns timestamptz
language sql stable
return coalesce(dead_at, (
  select max(a.ended_at) from dibs.attempt as a where a.id = _ended_at.id and a.outcome = 'succeeded'));

comment on function dibs._ended_at is 'When a job ended, if it has and its history was kept.';

create or replace function dibs._last_error(id uuid) returns text
language sql stable
return (select a.error from dibs.attempt as a where a.id = _last_error.id and a.error is not null order by a.run desc limit 1);

comment on function dibs._last_error is 'What the last run said that ended badly, as far as the history keeps it.';

create or replace function dibs._look(filter dibs.job_filter, after uuid, upto uuid, at timestamptz)
returns table (id uuid, queue_id integer, state text, reason text, ended_at timestamptz)
language sql stable
begin atomic
  select t.* from (
    (select r.id, r.queue_id, case when r.due_at > at then 'scheduled' else 'ready' end as state, null::text, null::timestamptz
     from dibs.ready as r
     where filter.states && '{scheduled,ready}'::text[] and r.id > after and r.id < upto
       and (filter.ids is null or r.id = any (filter.ids)) order by r.id limit dibs._most_looked_at())
    union all
    (select b.id, b.queue_id, 'blocked', null, null from dibs.blocked as b
     where 'blocked' = any (filter.states) and b.id > after and b.id < upto
       and (filter.ids is null or b.id = any (filter.ids)) order by b.id limit dibs._most_looked_at())
    union all
    (select l.id, l.queue_id, 'running', null, null from dibs.lease as l
     where 'running' = any (filter.states) and l.id > after and l.id < upto
       and (filter.ids is null or l.id = any (filter.ids)) order by l.id limit dibs._most_looked_at())
    union all
    (select d.id, d.queue_id, d.state, d.reason, d.ended_at from dibs.dead as d
     where filter.states && '{failed,exhausted,expired,cancelled}'::text[] and d.id > after and d.id < upto
       and (filter.ids is null or d.id = any (filter.ids)) order by d.id limit dibs._most_looked_at())
    union all
    (select j.id, j.queue_id, 'succeeded', null, null from dibs.job as j
     where 'succeeded' = any (filter.states) and j.id > after and j.id < upto
       and (filter.ids is null or j.id = any (filter.ids)) order by j.id limit dibs._most_looked_at())
  ) as t (id, queue_id, state, reason, ended_at)
  -- A job with a ticket may be here twice, and what its ticket says counts: it comes first, so that no cut parts the two.
  order by t.id, t.state = 'succeeded' limit dibs._most_looked_at();
end;

comment on function dibs._look is
'The jobs after an id, by their tickets, as many as one step looks at; one that is here as succeeded may have a ticket.';

create or replace function dibs._match(filter dibs.job_filter, after uuid, max integer, at timestamptz, out ids uuid[], out next uuid)
language plpgsql stable
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_after uuid := greatest(after, dibs._id_floor(filter.enqueued_after), dibs._nil_id());
  v_upto uuid := coalesce(dibs._id_floor(filter.enqueued_before), 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  v_queue integer := case when filter.queue is not null then dibs._queue_number(filter.queue) end;
  v_queues integer[] := dibs._queue_numbers(v_queue);
  v_print bytea := dibs._fingerprint_of(v_queue, filter.dedup_key);
  v_mine integer[] := case when dibs._is_confined() then dibs.confined_to() end;
begin
  with seen as materialized (
    select s.* from dibs._look(filter, v_after, v_upto, at) as s
  ), found as materialized (
    select s.id from seen as s
    cross join lateral (select j.* from dibs.job as j where j.id = s.id offset 0) as j
    where s.state = any (filter.states)
      and (s.state <> 'succeeded' or not dibs._has_ticket(s.id))
      and (v_mine is null or s.queue_id = any (v_mine))
      and (filter.queue is null or s.queue_id = any (v_queues))
      and (filter.kind is null or j.kind = filter.kind)
      and (filter."group" is null or j.group_name = filter."group")
      and (v_print is null or j.fingerprint = v_print)
      and (filter.payload is null or j.payload @> filter.payload)
      and (filter.headers is null or j.headers @> filter.headers)
      and (filter.ended_after is null or dibs._ended_at(s.id, s.ended_at) >= filter.ended_after)
      and (filter.ended_before is null or dibs._ended_at(s.id, s.ended_at) < filter.ended_before)
      and (filter.reason is null or coalesce(s.reason, dibs._last_error(s.id)) like filter.reason)
      and (filter.error_group is null or dibs._error_group(coalesce(s.reason, dibs._last_error(s.id))) = filter.error_group)
    order by s.id limit max
  )
  select array(select f.id from found as f order by f.id), case
      when (select count(*) from found) = max then (select f.id from found as f order by f.id desc limit 1)
      when (select count(*) from seen) = dibs._most_looked_at() then (select s.id from seen as s order by s.id desc limit 1) end
  into ids, next;
end
$$;

comment on function dibs._match is
'The next jobs after an id that a filter chooses, `max` of them at most, and where the next step goes on; null if this was the last.';
