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
  perform dibs._check_isolation('report');
  perform dibs._check_batch('report', ids, tokens, cardinality(progress));
  perform dibs._check_progress(p) from unnest(progress) as p;
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
  return dibs._require_lease('report', report.id, (
    select r.answer from dibs.report_many(array[report.id], array[token], array[report.progress]) as r));
end
$$;

comment on function dibs.report is
'Say how far a run has come: {"done": 3, "of": 10, "message": "…", "data": {…}}, each of them optional; it takes the place
of what was said before, and null takes it back. Answers `ok`, `cancel` or `busy`; raises DI001 when the token does not
hold the job.';
