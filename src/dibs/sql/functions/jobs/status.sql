-- status: a jobs state, progress and result in one look.

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
    select case when (select s.confined from dibs.setting as s) and dibs._is_hidden(status.id) then null
      else status.id end as id
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
