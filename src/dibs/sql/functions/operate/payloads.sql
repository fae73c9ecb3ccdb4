-- payloads: the payloads, headers and bodies of jobs, for an export.

create or replace function dibs.payloads(ids uuid[])
returns table (id uuid, payload jsonb, headers jsonb, content_type text, body bytea)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c_max_bytes constant bigint := 16000000;
begin
  perform dibs._check_items('payloads', payloads.ids, 'batch');
  return query
  with sized as materialized (
    select k.id, k.n, sum(coalesce(j.size, dibs._constant('small_job_bytes'))) over (order by k.n)
      - coalesce(j.size, dibs._constant('small_job_bytes')) as before
    from unnest(payloads.ids) with ordinality as k (id, n)
    left join lateral (select j.size from dibs.job as j where j.id = dibs._visible_job(k.id) offset 0) as j on true)
  select s.id, j.payload, j.headers, j.content_type, j.body from sized as s
  left join lateral (select j.* from dibs.job as j where j.id = dibs._visible_job(s.id) offset 0) as j on true
  where s.before < c_max_bytes order by s.n;
end
$$;

comment on function dibs.payloads is
'Worker protocol: the payload, headers, content type and body of jobs, in the order of `ids`; all null for a job that is
gone. Returns rows for the first jobs that have 16 MB together, and for one at least: ask again for the others.';
