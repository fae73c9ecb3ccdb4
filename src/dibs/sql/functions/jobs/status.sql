-- status: return the state of a job, how far it has come, and its result.

create or replace function dibs._may_read_results() returns boolean
language sql stable
begin atomic
  select coalesce(bool_or(pg_has_role(session_user, r.role, 'member')), false)
  from unnest(array[to_regrole(quote_ident(current_user)), to_regrole('dibs_producer'), to_regrole('dibs_worker'),
    to_regrole('dibs_admin')]::oid[]) as r (role);
end;

comment on function dibs._may_read_results is
'Return whether the login may see results: as the owner, or a member of dibs_producer, dibs_worker or dibs_admin.';

create or replace function dibs._state(id uuid) returns text
language sql volatile
begin atomic
  select case
    when (select s.confined from dibs.setting as s) and dibs._is_hidden_job(_state.id) then 'unknown'
    else coalesce(
      (select case when r.due_at > dibs.now() then 'scheduled' else 'ready' end
       from dibs.ready as r where r.id = _state.id),
      (select 'blocked' from dibs.blocked as b where b.id = _state.id),
      (select 'running' from dibs.lease as l where l.id = _state.id),
      (select d.state from dibs.dead as d where d.id = _state.id),
      (select 'succeeded' from dibs.job as j where j.id = _state.id),
      'unknown')
  end;
end;

comment on function dibs._state is
'Return the state of a job, or `unknown`. It is one statement with one snapshot, in which a ticket is in one table or
nowhere.';

create or replace function dibs.status_many(ids uuid[])
returns table (
  id uuid, state text, run integer, attempts integer, max_attempts integer, due_at timestamptz, claimed_at timestamptz,
  ended_at timestamptz, reason text, progress jsonb, result jsonb)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select g.id,
    case
      when r.id is not null then case when r.due_at > dibs.now() then 'scheduled' else 'ready' end
      when b.id is not null then 'blocked'
      when l.id is not null then 'running'
      when d.id is not null then d.state
      when j.id is not null then 'succeeded'
      else 'unknown'
    end,
    coalesce(r.run, b.run, l.run, d.run, a.run), coalesce(r.charged, b.charged, l.charged, d.charged)::integer,
    coalesce(j.max_attempts, q.max_attempts), coalesce(r.due_at, b.due_at, l.due_at, d.due_at, j.due_at), l.claimed_at,
    case when coalesce(r.id, b.id, l.id) is null then coalesce(d.ended_at, a.ended_at) end,
    split_part(coalesce(d.reason, case when l.id is null then a.error end), E'\n', 1),
    case when l.id is not null then l.progress else a.progress end,
    case when dibs._may_read_results() then (
      select s.result from dibs.attempt as s where s.id = k.id and s.outcome is null order by s.run desc limit 1) end
  from unnest(dibs._check_items('status_many', ids, 'batch')) with ordinality as g (id, n)
  cross join lateral (
    select case when (select s.confined from dibs.setting as s) and dibs._is_hidden_job(g.id) then null
      else g.id end as id
  ) as k
  left join lateral (select j.* from dibs.job as j where j.id = k.id offset 0) as j on true
  left join dibs.queue as q on q.id = j.queue_id
  left join lateral (select r.* from dibs.ready as r where r.id = k.id offset 0) as r on true
  left join lateral (select b.* from dibs.blocked as b where b.id = k.id offset 0) as b on true
  left join lateral (select l.* from dibs.lease as l where l.id = k.id offset 0) as l on true
  left join lateral (select d.* from dibs.dead as d where d.id = k.id offset 0) as d on true
  left join lateral (
    select a.run, a.ended_at, a.error, a.progress from dibs.attempt as a where a.id = k.id
    order by a.run desc limit 1) as a on true
  order by g.n;
end;

comment on function dibs.status_many is
'Return for each of these jobs, read in one snapshot: its state (scheduled, ready, blocked, running, succeeded, failed,
exhausted, expired, cancelled, or unknown if it was never committed or has been pruned), the number of its last run
(null after a success that is not in the history), its attempts (null after a success), its progress, and its result.
Between runs and after the end, the progress is that of the last run, if the history has it. The result is that of the
last successful run; it is null for roles that may not read results.';

create or replace function dibs.status(
  id uuid, out state text, out run integer, out attempts integer, out max_attempts integer, out due_at timestamptz,
  out claimed_at timestamptz, out ended_at timestamptz, out reason text, out progress jsonb, out result jsonb)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select s.state, s.run, s.attempts, s.max_attempts, s.due_at, s.claimed_at, s.ended_at, s.reason, s.progress, s.result
  from dibs.status_many(array[status.id]) as s;
end;

comment on function dibs.status is
'Return the state of a job, its progress and its result; see `status_many`. Call it again to watch a job.';
