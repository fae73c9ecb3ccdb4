-- The sentences of `why`.

create or replace function dibs._ahead_note(id uuid) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c_max constant integer := 1001;
  v_now constant timestamptz := dibs.now();
  v_me constant dibs.ready := (select r from dibs.ready as r where r.id = _ahead_note.id);
  v_queue constant dibs.queue := (select q from dibs.queue as q where q.id = v_me.queue_id);
  v_jobs bigint;
begin
  -- The places ahead of the job, as a range in each priority. Counting stops at 1,001.
  with range as materialized (
    select p.priority,
      case when p.priority = v_me.priority and v_queue.newest_first then v_me.due_at else '-infinity' end as from_at,
      case when p.priority = v_me.priority and not v_queue.newest_first then least(v_me.due_at, v_now)
        else v_now end as to_at,
      case when p.priority = v_me.priority and not v_queue.newest_first and v_me.due_at <= v_now
        then v_me.id else 'ffffffff-ffff-ffff-ffff-ffffffffffff' end as to_id
    from unnest(dibs._priorities(v_queue)) as p (priority) where p.priority >= v_me.priority
  )
  select count(*) into v_jobs from (
    select from range as a cross join lateral (
      select from dibs.ready as r
      where v_me.group_key is null and r.group_key is null and r.queue_id = v_me.queue_id and r.priority = a.priority
        and (r.due_at, r.id) > (a.from_at, v_me.id) and (r.due_at, r.id) < (a.to_at, a.to_id) limit c_max) as r
    union all
    select from range as a cross join lateral (
      select from dibs.ready as r
      where r.group_key = v_me.group_key and r.queue_id = v_me.queue_id and r.priority = a.priority
        and (r.due_at, r.id) > (a.from_at, v_me.id) and (r.due_at, r.id) < (a.to_at, a.to_id) limit c_max) as r
    limit c_max) as x;
  return case when v_jobs = 0 then 'nothing is ahead of it'
    when v_jobs = c_max then 'more than 1000 jobs are ahead of it' else v_jobs || ' jobs are ahead of it' end;
end
$$;

comment on function dibs._ahead_note is
'Say how many due jobs of its queue, or of its group, will be claimed before a job.';

create or replace function dibs._why_scheduled(ready dibs.ready, max_attempts integer, at timestamptz) returns text
language sql volatile
return format('It waits until %s (in %s)%s.', dibs._utc_text((ready).due_at), dibs._duration_text((ready).due_at - at),
    case when (ready).charged > 0 then format(', for attempt %s of %s', (ready).charged + 1, max_attempts) else '' end)
  || coalesce(' The last attempt failed: ' || (
    select rtrim(split_part(a.error, E'\n', 1), '.') from dibs.attempt as a
    where a.id = (ready).id and a.error is not null order by a.run desc limit 1) || '.', '');

comment on function dibs._why_scheduled is 'Explain a job that is due later.';

create or replace function dibs._why_ready(ready dibs.ready, job dibs.job, queue dibs.queue, at timestamptz)
returns text
language plpgsql volatile
as $$
begin
  if queue.paused_at is not null then
    return format('It is due, but queue %L has been paused since %s; resume it.', queue.name,
      dibs._utc_text(queue.paused_at));
  elsif ready.expire_at <= at then
    return format('It is past its time since %s and is about to be expired.', dibs._utc_text(ready.expire_at));
  end if;
  return format('It has been due for %s and waits for a worker: %s%s.', dibs._duration_text(at - ready.due_at),
    coalesce(dibs._queue_limit_note(queue.name, at),
      dibs._group_limit_note(ready.id, queue.id, job.group_name, ready.group_key, at), dibs._ahead_note(ready.id)),
    dibs._shard_note(queue.id, at) || coalesce('; ' || dibs._why_unserved(queue.id, queue.name, job.kind, at), ''));
end
$$;

comment on function dibs._why_ready is 'Explain a job that is due and waits for a worker.';

create or replace function dibs._why_running(lease dibs.lease, max_attempts integer, at timestamptz) returns text
language sql volatile
return format('%s has held it since %s, in attempt %s of %s; %s.%s',
  coalesce('Worker ' || (lease).worker || coalesce((
    select ' (' || w.name || ', last seen ' || dibs._utc_text(w.seen_at) || ')'
    from dibs.worker as w where w.id = (lease).worker), ''),
    'A client'),
  dibs._utc_text((lease).claimed_at), (lease).charged, max_attempts,
  case when (lease).lease_until > at then format('its lease lasts until %s', dibs._utc_text((lease).lease_until))
    else format('its lease ran out at %s and it waits to be rescued', dibs._utc_text((lease).lease_until)) end,
  coalesce(' Its cancellation was asked for: ' || (lease).cancel || '.', ''));

comment on function dibs._why_running is 'Explain a job that runs.';
