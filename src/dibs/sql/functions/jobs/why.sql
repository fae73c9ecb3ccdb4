-- why: explain a job in words. show: return all about it as one JSON document.

create or replace function dibs.why(id uuid) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_state text;
  v_found record;
begin
  select j as job, q as queue, q.name, q.paused_at, r as ready, b as blocked, b.limit_id, b.waits_for, l as lease,
    d.reason, d.ended_at, coalesce(r.expire_at, b.expire_at) as expire_at,
    coalesce(j.max_attempts, q.max_attempts) as max_attempts,
    case when r.due_at > v_now then 'scheduled' when r.id is not null then 'ready' when b.id is not null then 'blocked'
      when l.id is not null then 'running' else coalesce(d.state, 'succeeded') end as state
  into v_found
  from dibs.job as j join dibs.queue as q on q.id = j.queue_id
  left join dibs.ready as r on r.id = j.id left join dibs.blocked as b on b.id = j.id
  left join dibs.lease as l on l.id = j.id left join dibs.dead as d on d.id = j.id
  where j.id = why.id;
  v_state := case when (select s.confined from dibs.setting as s) and dibs._is_hidden_job(why.id) then 'unknown'
    else coalesce(v_found.state, 'unknown') end;
  return case v_state
    when 'unknown' then format('There is no job %s: it was never committed, or it was pruned.', why.id)
    when 'succeeded' then 'It has succeeded.'
    when 'scheduled' then dibs._why_scheduled(v_found.ready, v_found.max_attempts, v_now)
    when 'ready' then dibs._why_ready(v_found.ready, v_found.job, v_found.queue, v_now)
    when 'blocked' then coalesce(dibs._why_parked(v_found.blocked, v_found.name, v_now),
      dibs._why_blocked(v_found.limit_id, v_found.waits_for, why.id))
    when 'running' then dibs._why_running(v_found.lease, v_found.max_attempts, v_now)
    else format('It ended as %s at %s: %s. It can be brought back.', v_state, dibs._utc_text(v_found.ended_at),
      split_part(v_found.reason, E'\n', 1))
  end || case when v_state in ('scheduled', 'ready', 'blocked') and v_found.paused_at is null
    and v_found.expire_at > v_now and v_found.expire_at < 'infinity' then
    format(' Unless it starts before, it expires at %s.', dibs._utc_text(v_found.expire_at)) else '' end;
end
$$;

comment on function dibs.why is 'Explain in words why a job waits, who holds it, or how it ended.';

create or replace function dibs.show(id uuid) returns jsonb
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  -- All columns of the job, except internal ones and those of its policy, which is a separate part.
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
        select jsonb_agg(
          jsonb_build_object('at', e.at, 'role', e.role, 'actor', e.actor, 'before', e.before) order by e.id)
        from dibs.audit as e where e.job_id = j.id), '[]'))
    || dibs._relatives_of(j.id)
  from dibs.jobs as v join dibs.job as j on j.id = v.id where v.id = show.id;
end;

comment on function dibs.show is
'Return all that is known of a job as one JSON document: its payload, its attempts, changes by `edit`, the schedule that
made it, the job that it followed (`parent`), and its own follow-ups. Null if there is no such job.';
