-- What why is made of.

create or replace function dibs._ahead_of(id uuid) returns text
language sql volatile
return (
  select case when a.n = 0 then 'nothing is ahead of it'
    when a.n > 1000 then 'more than 1000 jobs are ahead of it' else a.n || ' jobs are ahead of it' end
  from (
    select count(*) as n from (
      select from dibs.ready as me join dibs.queue as q on q.id = me.queue_id
      join dibs.ready as r on r.queue_id = me.queue_id and r.lane is not distinct from me.lane
        and (r.priority > me.priority or r.priority = me.priority and case when q.newest_first
          then (r.due_at, r.id) > (me.due_at, me.id) else (r.due_at, r.id) < (me.due_at, me.id) end)
        and r.due_at <= dibs.now()
      where me.id = _ahead_of.id limit 1001) as x) as a);

comment on function dibs._ahead_of is 'How many due jobs of its queue, or of its group, go before a job.';
