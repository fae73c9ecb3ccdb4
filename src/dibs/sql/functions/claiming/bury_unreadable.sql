-- bury_unreadable: ready, blocked → dead, for a job that makes each claim of its queue fail.
-- It runs only after a claim has failed, so its EXCEPTION block costs no claim anything.

create or replace function dibs._read_as_claimed(ids uuid[]) returns void
language plpgsql stable
as $$
begin
  -- These are the values that a claim reads of a job, in the form in which they are sent.
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

comment on function dibs._read_as_claimed is
'Read jobs as a claim does, and raise the error that the claim would raise.';

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

comment on function dibs._find_unreadable is
'Return the jobs that cannot be read, found by bisection, each with the error that it raises.';

create or replace function dibs.bury_unreadable(queues text[]) returns table (id uuid, reason text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_queues integer[];
  v_ids uuid[];
  v_bad record;
begin
  perform dibs._check_isolation('bury_unreadable');
  perform dibs._check_queue_access(dibs._check_items('bury_unreadable', queues, 'names'));
  v_queues := array(select q.id from dibs.queue as q where q.name = any (queues));
  -- Read a hundred jobs at a time, in about the order of claims: the unreadable job is usually among the first.
  for v_ids in
    select array_agg(waiting.id order by waiting.n) from (
      select t.id, row_number() over (order by t.priority desc, t.due_at, t.id) - 1 as n from (
        select r.id, r.priority, r.due_at from dibs.ready as r where r.queue_id = any (v_queues) and r.due_at <= v_now
        union all
        select b.id, b.priority, b.due_at from dibs.blocked as b where b.queue_id = any (v_queues)) as t) as waiting
    group by waiting.n / 100 order by waiting.n / 100
  loop
    for v_bad in
      select f.id, dibs._clip_error('cannot be handed out: ' || f.flaw) as reason from dibs._find_unreadable(v_ids) as f
    loop
      return query
      select b.id, v_bad.reason from dibs._end_waiting_jobs(array[v_bad.id], 'failed', v_bad.reason, v_now) as b;
    end loop;
    exit when v_bad.id is not null;
  end loop;
end
$$;

comment on function dibs.bury_unreadable is
'Worker protocol: end jobs of these queues whose data cannot be read as `failed`, so that claims succeed again: of the
first hundred jobs, in the order of claims, that have such a job. A client calls it after a claim has raised an error of
data (SQLSTATE 22… or 54…). Returns the jobs that it ended, each with the reason; no rows if the error had another
cause, or if the job is locked or gone. Works in READ COMMITTED only.';
