-- bury_unreadable: ready, blocked → dead, for a job that makes each claim of its queue fail.

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
  -- A hundred at a time, in about the order of claims: what stops them is usually at the front.
  for v_ids in
    select array_agg(t.id order by t.n) from (
      select t.id, row_number() over (order by t.priority desc, t.due_at, t.id) - 1 as n from (
        select r.id, r.priority, r.due_at from dibs.ready as r where r.queue_id = any (v_queues) and r.due_at <= v_now
        union all
        select b.id, b.priority, b.due_at from dibs.blocked as b where b.queue_id = any (v_queues)) as t) as t
    group by t.n / 100 order by t.n / 100
  loop
    for v_bad in select f.id, 'cannot be handed out: ' || dibs._clip_error(f.flaw) as reason from dibs._find_unreadable(v_ids) as f loop
      return query select b.id, v_bad.reason from dibs._end_waiting_jobs(array[v_bad.id], 'failed', v_bad.reason, v_now) as b;
    end loop;
    exit when v_bad.id is not null;
  end loop;
end
$$;

comment on function dibs.bury_unreadable is
'Worker protocol: after a claim of these queues has raised an error of data (SQLSTATE 22… or 54…): find the jobs whose data cannot be read, and end
them as `failed`, so that they stand in nobody''s way. Returns those it ended, and why; none when the error was about something else.
Clients and workers call it by themselves. Works in READ COMMITTED only.';
