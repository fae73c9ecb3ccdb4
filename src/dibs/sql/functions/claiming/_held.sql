-- What a claim holds whose answer was lost.

create or replace function dibs._held_by(token uuid, worker bigint, queues text[]) returns setof dibs.claimed
language plpgsql stable
as $$
#variable_conflict use_column
begin
  -- There is no index on tokens: a heartbeat would have to maintain it, and this is rare.
  return query
  select l.id, l.token, q.name, coalesce(j.kind, ''), j.payload, j.body, j.content_type, j.headers, l.priority, l.run, l.charged,
    coalesce(j.max_attempts, q.max_attempts), l.losses, l.due_at, j.deadline, l.claimed_at, l.lease_until
  from dibs.lease as l
  join dibs.queue as q on q.id = l.queue_id
  left join lateral (
    select j.kind, j.payload, j.body, j.content_type, j.headers, j.max_attempts, j.deadline
    from dibs.job as j where j.id = l.id offset 0) as j on true
  where l.token = _held_by.token and l.worker is not distinct from _held_by.worker and q.name = any (queues)
    and (not q.is_confined or coalesce(q.id = any (dibs.confined_to()), true))
  order by l.priority desc, l.due_at, l.id;
end
$$;

comment on function dibs._held_by is
'The jobs that a token holds, as its claim handed them out: of these queues and this worker only, and of none that the caller may
not use.';
