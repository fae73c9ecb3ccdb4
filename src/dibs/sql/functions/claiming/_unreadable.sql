-- Jobs whose data cannot be read. Only after a claim has failed, so an EXCEPTION block costs nobody anything.

create or replace function dibs._read_as_claimed(ids uuid[]) returns void
language plpgsql stable
as $$
begin
  -- What a claim reads of a job, in the form in which it is sent.
  perform n.units from unnest(ids) as k (id) cross join lateral dibs._job_needs(k.id) as n;
  perform octet_length(j.payload::text), octet_length(j.headers::text), octet_length(j.body), dibs.now() + t.own_lease,
    dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, null, 1), length(j.kind || j.content_type), j.deadline::text
  from unnest(ids) as k (id)
  left join lateral (select j.* from dibs.job as j where j.id = k.id offset 0) as j on true
  left join lateral (
    select r.due_at, r.own_lease from dibs.ready as r where r.id = k.id
    union all select b.due_at, b.own_lease from dibs.blocked as b where b.id = k.id) as t on true;
end
$$;

comment on function dibs._read_as_claimed is 'Read jobs as a claim does; raises what it would raise.';

create or replace function dibs._find_unreadable(ids uuid[]) returns table (id uuid, flaw text)
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_half constant integer := cardinality(ids) / 2;
begin
  perform dibs._read_as_claimed(ids);
exception when data_exception or program_limit_exceeded then
  if v_half = 0 then
    return query select ids[1], sqlerrm;
    return;
  end if;
  return query select f.* from dibs._find_unreadable(ids[: v_half]) as f;
  return query select f.* from dibs._find_unreadable(ids[v_half + 1 :]) as f;
end
$$;

comment on function dibs._find_unreadable is 'Those of the jobs that cannot be read, found by halving, and what is wrong with each.';
