-- report: the lease stays as it is, and says how far its run has come.

create or replace function dibs.report_many(ids uuid[], tokens uuid[], progress jsonb[])
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_done record;
begin
  perform dibs.check_isolation('report');
  perform dibs.check_batch('report', ids, tokens, cardinality(progress));
  perform dibs.check_progress(p) from unnest(progress) as p;
  with asked as materialized (
    select * from unnest(ids, tokens, progress) as k (id, token, progress) order by k.id
  ), free as materialized (
    -- As for extend: one handler's open transaction must not stop the reports of all the others.
    select l.id, a.progress from asked as a
    cross join lateral (
      select l.id from dibs.lease as l where l.id = a.id and l.token = a.token for update skip locked) as l
  ), told as (
    update dibs.lease as l set progress = f.progress from free as f where l.id = f.id returning l.id, l.cancel
  )
  select array_agg(t.id) as ids, array_agg(t.id) filter (where t.cancel is not null) as cancel into v_done from told as t;
  return query
  select k.n::integer, k.id,
    case
      when l.id is null then 'lost'
      when k.id = any (v_done.cancel) then 'cancel'
      when k.id = any (v_done.ids) then 'ok'
      else 'busy'
    end
  from unnest(ids, tokens) with ordinality as k (id, token, n)
  left join dibs.lease as l on l.id = k.id and l.token = k.token
  order by k.n;
end
$$;

comment on function dibs.report_many is
'Say how far many runs have come; their leases last as long as before. Answers for each item: `ok`; `cancel` (stored, but
the job is to stop); `busy` (locked just now, try again); `lost` (the token does not hold it).';

create or replace function dibs.report(id uuid, token uuid, progress jsonb) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs.held('report', report.id, (
    select r.answer from dibs.report_many(array[report.id], array[token], array[report.progress]) as r));
end
$$;

comment on function dibs.report is
'Say how far a run has come: {"done": 3, "of": 10, "message": "…", "data": {…}}, each of them optional; it takes the place
of what was said before, and null takes it back. Answers `ok`, `cancel` or `busy`; raises DI001 when the token does not
hold the job.';

create or replace function dibs.status(
  id uuid, out state text, out run integer, out attempts integer, out max_attempts integer, out due_at timestamptz,
  out claimed_at timestamptz, out ended_at timestamptz, out reason text, out progress jsonb)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
begin atomic
  select
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
    case when l.id is not null then l.progress else a.progress end
  from (
    select case when (select s.confined from dibs.setting as s) and dibs.is_hidden(status.id) then null else status.id end as id
  ) as k
  left join lateral (select j.* from dibs.job as j where j.id = k.id offset 0) as j on true
  left join dibs.queue as q on q.id = j.queue_id
  left join lateral (select r.* from dibs.ready as r where r.id = k.id offset 0) as r on true
  left join lateral (select b.* from dibs.blocked as b where b.id = k.id offset 0) as b on true
  left join lateral (select l.* from dibs.lease as l where l.id = k.id offset 0) as l on true
  left join lateral (select d.* from dibs.dead as d where d.id = k.id offset 0) as d on true
  left join lateral (
    select a.run, a.ended_at, a.error, a.progress from dibs.attempt as a where a.id = k.id
    order by a.run desc limit 1) as a on true;
end;

comment on function dibs.status is
'What a job is now and how far its run has come; between runs and after the end, what its last run said, if that is in
the history. Ask again and again to watch a job.';
