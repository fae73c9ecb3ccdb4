-- Which priorities a queue's jobs have: a claim looks at those only.

create or replace function dibs._priorities(queue dibs.queue) returns smallint[]
language plpgsql stable
as $$
begin
  if not exists (select from dibs.queue_priority as p where p.queue_id = queue.id) then
    return array[queue.priority];
  end if;
  return array(
    select queue.priority union select p.priority from dibs.queue_priority as p where p.queue_id = queue.id order by 1 desc);
end
$$;

comment on function dibs._priorities is 'The priorities that jobs of a queue have or have had, highest first.';

create or replace function dibs._note_priorities(queue_ids integer[], priorities smallint[]) returns void
language plpgsql volatile
as $$
begin
  insert into dibs.queue_priority (queue_id, priority)
  select distinct n.queue_id, n.priority from unnest(queue_ids, priorities) as n (queue_id, priority)
  where not exists (
    select from dibs.queue_priority as p where p.queue_id = n.queue_id and p.priority = n.priority);
end
$$;

comment on function dibs._note_priorities is
'Note priorities that a queue has not had before, in the transaction that brings the jobs: who sees them sees their priority.';
