-- why: explains in words. show: the same as one JSON document.

create or replace function dibs.why(id uuid) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_state text;
  v_job record;
begin
  select q.name as queue, q.id as queue_id, q.paused_at, r.due_at, coalesce(r.expire_at, b.expire_at) as expire_at, r.charged,
    b.waits_for, b.limit_id, b as blocked, j.kind, j.group_name, r.group_key, l.claimed_at, l.lease_until, l.cancel, l.charged as attempt, l.worker,
    w.name as worker_name, w.seen_at, d.reason, d.ended_at,
    coalesce(j.max_attempts, q.max_attempts) as max_attempts, r.priority,
    (select a.error from dibs.attempt as a where a.id = why.id and a.error is not null
     order by a.run desc limit 1) as error,
    case when r.due_at > v_now then 'scheduled' when r.id is not null then 'ready' when b.id is not null then 'blocked'
      when l.id is not null then 'running' else coalesce(d.state, 'succeeded') end as state
  into v_job
  from dibs.job as j join dibs.queue as q on q.id = j.queue_id
  left join dibs.ready as r on r.id = j.id left join dibs.blocked as b on b.id = j.id
  left join dibs.lease as l on l.id = j.id left join dibs.worker as w on w.id = l.worker
  left join dibs.dead as d on d.id = j.id
  where j.id = why.id;
  v_state := case when (select s.confined from dibs.setting as s) and dibs._is_hidden_job(why.id) then 'unknown'
    else coalesce(v_job.state, 'unknown') end;
  return case v_state
    when 'unknown' then format('There is no job %s: it was never committed, or it was pruned.', why.id)
    when 'succeeded' then 'It has succeeded.'
    when 'scheduled' then format('It waits until %s (in %s)%s.', dibs._utc_text(v_job.due_at), dibs._duration_text(v_job.due_at - v_now),
      case when v_job.charged > 0 then format(', for attempt %s of %s', v_job.charged + 1, v_job.max_attempts)
        else '' end)
      || coalesce(' The last attempt failed: ' || rtrim(split_part(v_job.error, E'\n', 1), '.') || '.', '')
    when 'ready' then
      case when v_job.paused_at is not null then
        format('It is due, but queue %L has been paused since %s; resume it.', v_job.queue, dibs._utc_text(v_job.paused_at))
      when v_job.expire_at <= v_now then
        format('It is past its time since %s and is about to be expired.', dibs._utc_text(v_job.expire_at))
      else format('It has been due for %s and waits for a worker: %s%s.', dibs._duration_text(v_now - v_job.due_at),
        coalesce(dibs._queue_limit_note(v_job.queue, v_now),
          dibs._group_limit_note(v_job.queue_id, v_job.group_name, v_job.group_key, v_now),
          dibs._ahead_note(why.id)),
        dibs._shard_note(v_job.queue_id, v_now) || coalesce('; ' || dibs._why_unserved(v_job.queue_id, v_job.queue, v_job.kind, v_now), ''))
      end
    when 'blocked' then coalesce(dibs._why_parked(v_job.blocked, v_job.queue, v_now),
      dibs._why_blocked(v_job.limit_id, v_job.waits_for, why.id))
    when 'running' then format('%s has held it since %s, in attempt %s of %s; %s.%s',
      coalesce('Worker ' || v_job.worker
        || coalesce(' (' || v_job.worker_name || ', last seen ' || dibs._utc_text(v_job.seen_at) || ')', ''), 'A client'),
      dibs._utc_text(v_job.claimed_at), v_job.attempt, v_job.max_attempts,
      case when v_job.lease_until > v_now then format('its lease lasts until %s', dibs._utc_text(v_job.lease_until))
        else format('its lease ran out at %s and it waits to be rescued', dibs._utc_text(v_job.lease_until)) end,
      coalesce(' Its cancellation was asked for: ' || v_job.cancel || '.', ''))
    else format('It ended as %s at %s: %s. It can be brought back.', v_state, dibs._utc_text(v_job.ended_at),
      split_part(v_job.reason, E'\n', 1))
  end || case when v_state in ('scheduled', 'ready', 'blocked') and v_job.paused_at is null
    and v_job.expire_at > v_now and v_job.expire_at < 'infinity' then
    format(' Unless it starts before, it expires at %s.', dibs._utc_text(v_job.expire_at)) else '' end;
end
$$;

comment on function dibs.why is 'Explain in words what a job is waiting for, who holds it, or how it ended.';

create or replace function dibs.show(id uuid) returns jsonb
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  -- What a job was asked to be shows by itself; named are its policy, which is a separate part, and what is internal.
  select to_jsonb(j)
      - '{queue_id,fingerprint,group_name,dedup_scope,ttl,lease,lease_growth,lease_cap,backoff,history}'::text[]
    || to_jsonb(v) || jsonb_build_object(
      'charged', v.attempts, 'has_dedup_key', j.fingerprint is not null, 'body', encode(j.body, 'base64'),
      'reason', (select d.reason from dibs.dead as d where d.id = j.id),
      'policy', jsonb_strip_nulls(jsonb_build_object('ttl', j.ttl, 'lease', j.lease, 'lease_growth', j.lease_growth,
        'lease_cap', j.lease_cap, 'max_attempts', j.max_attempts, 'backoff', j.backoff, 'history', j.history)),
      'attempts', coalesce((
        select jsonb_agg(jsonb_build_object('run', a.run, 'outcome', coalesce(a.outcome, 'succeeded'),
          'claimed_at', a.claimed_at, 'ended_at', a.ended_at, 'worker', a.worker, 'result', a.result, 'error', a.error,
          'progress', a.progress) order by a.run)
        from dibs.attempt as a where a.id = j.id), '[]'),
      'changes', coalesce((
        select jsonb_agg(jsonb_build_object('at', e.at, 'role', e.role, 'actor', e.actor, 'before', e.before) order by e.id)
        from dibs.audit as e where e.job_id = j.id), '[]'))
    || dibs._relatives_of(j.id)
  from dibs.jobs as v join dibs.job as j on j.id = v.id where v.id = show.id;
end;

comment on function dibs.show is
'Everything known of a job as one JSON document, with its payload, its attempts, what was edited, the schedule that made it, the job it followed (`parent`) and
its own follow-ups; null when there is no such job.';
