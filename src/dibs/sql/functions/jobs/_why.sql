-- What why is made of.

create or replace function dibs._ahead_note(id uuid) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  c_max constant integer := 1001;
  v_now constant timestamptz := dibs.now();
  v_me constant dibs.ready := (select r from dibs.ready as r where r.id = _ahead_note.id);
  v_queue constant dibs.queue := (select q from dibs.queue as q where q.id = v_me.queue_id);
  v_jobs bigint;
begin
  -- Each priority has its range, and no more of it is read than is told.
  with range as materialized (
    select p.priority,
      case when p.priority = v_me.priority and v_queue.newest_first then v_me.due_at else '-infinity' end as from_at,
      case when p.priority = v_me.priority and not v_queue.newest_first then least(v_me.due_at, v_now) else v_now end as to_at,
      case when p.priority = v_me.priority and not v_queue.newest_first and v_me.due_at <= v_now
        then v_me.id else 'ffffffff-ffff-ffff-ffff-ffffffffffff' end as to_id
    from unnest(dibs._priorities(v_queue)) as p (priority) where p.priority >= v_me.priority
  )
  select count(*) into v_jobs from (
    select from range as a cross join lateral (
      select from dibs.ready as r
      where v_me.group_key is null and r.group_key is null and r.queue_id = v_me.queue_id and r.priority = a.priority
        and (r.due_at, r.id) > (a.from_at, v_me.id) and (r.due_at, r.id) < (a.to_at, a.to_id) limit c_max) as r
    union all
    select from range as a cross join lateral (
      select from dibs.ready as r
      where r.group_key = v_me.group_key and r.queue_id = v_me.queue_id and r.priority = a.priority
        and (r.due_at, r.id) > (a.from_at, v_me.id) and (r.due_at, r.id) < (a.to_at, a.to_id) limit c_max) as r
    limit c_max) as x;
  return case when v_jobs = 0 then 'nothing is ahead of it'
    when v_jobs = c_max then 'more than 1000 jobs are ahead of it' else v_jobs || ' jobs are ahead of it' end;
end
$$;

comment on function dibs._ahead_note is 'How many due jobs of its queue, or of its group, go before a job.';
