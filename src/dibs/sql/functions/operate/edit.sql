-- edit: change the payload, the priority or the due time of a job that waits or is dead.

create or replace function dibs._read_change(changes jsonb, at timestamptz) returns dibs.job_change
language plpgsql stable
as $$
declare
  v_change dibs.job_change;
begin
  if coalesce(jsonb_typeof(changes), 'null') <> 'object' or changes = '{}' then
    raise exception using errcode = 'DI010', message = 'edit takes a JSON object of what is to be changed',
      hint = 'such as {"priority": 9}';
  end if;
  perform dibs._check_json_keys('DI010', 'job', 'field that can be changed', changes,
    dibs._field_names('dibs.job_change'));
  v_change := jsonb_populate_record(null::dibs.job_change, changes);
  if v_change.priority not between -100 and 100 or changes -> 'priority' = 'null' then
    raise exception using errcode = 'DI010', message = 'a job has a priority from -100 to 100';
  end if;
  if not dibs._check_job_time(1, v_change.delay, v_change.due_at, null, at) then
    raise exception using errcode = 'DI010', message = 'a job is due within 10 years';
  end if;
  if num_nonnulls(v_change.due_at, v_change.delay) > 0 then
    v_change.due_at := greatest(coalesce(v_change.due_at, at + v_change.delay), at);
  end if;
  return v_change;
end
$$;

comment on function dibs._read_change is
'Read the changes that `edit` was given; raise DI010 for an unknown field or a value out of range. A delay becomes a due
time, which is never in the past.';

create or replace function dibs._edit_ticket(
  id uuid, change dibs.job_change, at timestamptz, out state text, out old_due_at timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_tickets dibs.ready[];
begin
  -- The ticket may move to another table while we wait for its lock: look again until the job can no longer be changed.
  while state is null or state not in ('running', 'succeeded', 'unknown') loop
    -- Withdraw the ticket even if only the payload changes: a concurrent claim must not hand out the old payload.
    v_tickets := dibs._withdraw_tickets(array[id], at, keeps_groups => true);
    if v_tickets is not null then
      state := null;
      old_due_at := v_tickets[1].due_at;
      v_tickets[1].priority := coalesce(change.priority, v_tickets[1].priority);
      v_tickets[1].expire_at := dibs._postponed_expiry(id, v_tickets[1].expire_at,
        v_tickets[1].expire_at + greatest(change.due_at - v_tickets[1].due_at, interval '0'));
      v_tickets[1].due_at := coalesce(change.due_at, v_tickets[1].due_at);
      v_tickets[1].ring := true;
      perform dibs._return_tickets(v_tickets, at);
      return;
    end if;
    select d.due_at into old_due_at from dibs.dead as d where d.id = _edit_ticket.id for update;
    if found then
      state := null;
      update dibs.dead as d
      set priority = coalesce(change.priority, d.priority), due_at = coalesce(change.due_at, d.due_at)
      where d.id = _edit_ticket.id;
      return;
    end if;
    state := dibs._state(id);
  end loop;
end
$$;

comment on function dibs._edit_ticket is
'Change the priority and the due time in the ticket of a job that waits or is dead, and return its old due time. `state`
is null then; it is the state of a job that is running, succeeded or unknown, whose ticket stays. A later due time moves
the time when the job expires by as much, but not past its deadline.';

create or replace function dibs.edit(id uuid, changes jsonb) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_change dibs.job_change := dibs._read_change(edit.changes, v_now);
  v_before jsonb;
  v_queue dibs.queue;
  v_ticket record;
begin
  perform dibs._check_isolation('edit');
  if dibs._visible_job(edit.id) is null or not exists (select from dibs.job as j where j.id = edit.id) then
    perform dibs._refuse_unknown_job(edit.id);
  end if;
  if edit.changes ? 'payload' then
    -- Lock the queue before dedup keys and tickets, in the order of producers. _edit_job finds it noted, unless the job
    -- is moved meanwhile.
    perform dibs._note_large(array[j.queue_id]) from dibs.job as j
    where j.id = edit.id
      and dibs._json_bytes(v_change.payload) + coalesce(dibs._json_bytes(j.headers), 0)
        > dibs._constant('large_job_bytes');
  end if;
  perform dibs._lock_dedup_keys(array[edit.id]);
  v_ticket := dibs._edit_ticket(edit.id, v_change, v_now);
  if v_ticket.state is not null then
    perform dibs._refuse_edit(edit.id, v_ticket.state);
  end if;
  -- The ticket is changed, and the row of the job is not yet.
  select jsonb_build_object('priority', j.priority, 'due_at', v_ticket.old_due_at)
    || case when edit.changes ? 'payload' then jsonb_build_object('payload', j.payload) else '{}' end
    || case when edit.changes ? 'payload' and j.body is not null
      then jsonb_build_object('body', encode(j.body, 'base64'), 'content_type', j.content_type) else '{}' end
  into v_before from dibs.job as j where j.id = edit.id;
  select q.* into v_queue from dibs.queue as q join dibs.job as j on j.queue_id = q.id where j.id = edit.id;
  perform dibs._edit_job(edit.id, edit.changes ? 'payload', v_change, v_queue);
  insert into dibs.audit (id, operation, at, role, actor, verb, queue, jobs, detail, job_id, before)
  select n.id, n.id, v_now, session_user, dibs._actor(), 'edit', split_part(v_queue.name, '#', 1), 1,
    jsonb_build_object('changed', (select jsonb_agg(k order by k) from jsonb_object_keys(edit.changes) as k)),
    edit.id, v_before
  from (select nextval('dibs.audit_id_seq') as id) as n;
  return 'changed';
end
$$;

comment on function dibs.edit is
'Change the payload, the priority or the due time (`due_at` or `delay`) of a job that waits or is dead; `changes` is a
JSON object. Returns `changed`; raises DI004 if the job is running, DI003 if it has succeeded and DI002 if there is no
such job. The audit keeps the old values, with who changed them and when; `show` shows them.';

create or replace function dibs._edit_job(id uuid, has_payload boolean, change dibs.job_change, queue dibs.queue)
returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_size integer := coalesce(dibs._json_bytes(change.payload), 0);
  v_size_with_headers integer;
begin
  if has_payload then
    perform dibs._check_payload_size(1, v_size, queue.name, queue.payload_limit);
    update dibs.job as j
    set payload = nullif(change.payload, 'null'), body = null,
      content_type = case when j.body is null then j.content_type end,
      -- Null for a small job, whose size is not kept.
      size = nullif(greatest(v_size + coalesce(dibs._json_bytes(j.headers), 0), dibs._constant('small_job_bytes')),
        dibs._constant('small_job_bytes'))
    where j.id = _edit_job.id returning j.size into v_size_with_headers;
    if v_size_with_headers > dibs._constant('large_job_bytes') then
      perform dibs._note_large(array[queue.id]);
    end if;
  end if;
  update dibs.job as j set priority = coalesce(change.priority, j.priority), due_at = coalesce(change.due_at, j.due_at)
  where j.id = _edit_job.id and num_nonnulls(change.priority, change.due_at) > 0;
end
$$;

comment on function dibs._edit_job is
'Change the row of a job: its payload if `has_payload`, its priority and its due time.';

create or replace function dibs._refuse_edit(id uuid, state text) returns void
language plpgsql stable
as $$
begin
  if state = 'unknown' then
    perform dibs._refuse_unknown_job(id);
  elsif state = 'running' then
    raise exception using errcode = 'DI004', message = format('job %s runs, so it cannot be changed', id),
      hint = 'wait until the run has ended, or cancel it';
  end if;
  raise exception using errcode = 'DI003', message = format('job %s has already succeeded', id),
    hint = 'enqueue another one';
end
$$;

comment on function dibs._refuse_edit is
'Raise DI002 for an unknown job, DI004 for a running one, and DI003 for one that has succeeded.';
