-- The next look at a supervised process: at most one waits, however often it is requested.

create or replace function dibs._lock_process(queue_id integer, name text) returns uuid
language plpgsql volatile
as $$
declare
  v_look uuid;
begin
  loop
    select p.job_id into v_look from dibs.supervised_process as p
    where p.queue_id = _lock_process.queue_id and p.name = _lock_process.name for update;
    exit when found;
    insert into dibs.supervised_process (queue_id, name, job_id)
    values (_lock_process.queue_id, _lock_process.name, dibs._nil_id())
    on conflict on constraint supervised_process_pkey do nothing;
  end loop;
  return v_look;
end
$$;

comment on function dibs._lock_process is
'Lock the row of a supervised process, and insert it first if it is missing. Return its newest look,
which may have ended, or the nil id if there was no row.';

create or replace function dibs._hasten_look(id uuid, due timestamptz) returns text
language plpgsql volatile
as $$
declare
  v_old_due timestamptz;
begin
  -- Both reads miss a ticket that moves from blocked to ready between them. _is_waiting reads both tables in one
  -- statement. If it finds the ticket, read again.
  loop
    select r.due_at into v_old_due from dibs.ready as r where r.id = _hasten_look.id for update;
    if v_old_due > due then
      update dibs.ready as r set due_at = due where r.id = _hasten_look.id;
      -- Idle workers wait for the old due time.
      perform pg_notify('dibs', q.id::text)
      from dibs.ready as r join dibs.queue as q on q.id = r.queue_id where r.id = _hasten_look.id and q.ring;
      return 'hastened';
    elsif v_old_due is not null then
      return 'duplicate';
    end if;
    perform from dibs.blocked as b where b.id = _hasten_look.id for update;
    if found then
      return 'duplicate';
    end if;
    exit when not dibs._is_waiting(_hasten_look.id);
  end loop;
  return null;
end
$$;

comment on function dibs._hasten_look is
'Lock the ticket of a look. If the look is due later than `due`, make it due then and return `hastened`. Otherwise
return `duplicate`, or null if the look does not wait: it runs, has ended, or does not exist.';

create or replace function dibs.supervise(
  name text, payload jsonb, delay interval default '0', queue text default 'supervisors',
  kind text default 'db_function', options jsonb default '{}', out job_id uuid, out outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_due timestamptz := dibs.now() + dibs._check_delay('supervise', coalesce(delay, interval '0'));
  v_queue_id integer;
begin
  perform dibs._ensure_queues(array[queue]);
  v_queue_id := (select q.id from dibs.queue as q where q.name = queue);
  supervise.job_id := dibs._lock_process(v_queue_id, supervise.name);
  outcome := dibs._hasten_look(supervise.job_id, v_due);
  if outcome is not null then
    return;
  end if;
  -- No look waits, so enqueue the next one. A look that runs goes on beside it.
  select e.id, e.outcome into supervise.job_id, outcome
  from dibs.enqueue_many(jsonb_build_array(
    '{"max_attempts": 10000, "ttl": "10 years",
      "backoff": {"kind": "exponential", "delays": [1], "factor": 2, "cap": 300, "jitter": 0.1}}'::jsonb
    || coalesce(options, '{}')
    || jsonb_build_object('queue', queue, 'kind', kind, 'payload', payload, 'due_at', v_due))) as e;
  update dibs.supervised_process as p set job_id = supervise.job_id
  where p.queue_id = v_queue_id and p.name = supervise.name;
end
$$;

comment on function dibs.supervise is
'Make sure that a supervised process (a business process, such as an order) is looked at again after `delay`, by a job.
At most one such job waits for each name and queue. If none waits, enqueue one of that kind, payload and `options`
(those of a job): `outcome` is `enqueued`. If one waits, it keeps its kind, payload and options: `outcome` is
`duplicate`, or `hastened` if the call made it due sooner. A running job does not count, so a supervisor can ask for its
own next run. A supervisor should lock the row of the process in your own tables before it reads
the facts: otherwise a second one may act on the same facts.';

create or replace function dibs.supervised(name text, queue text default 'supervisors') returns text
language sql volatile security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce((
    select case when s.state in ('scheduled', 'ready', 'blocked', 'running') then s.state end
    from dibs.supervised_process as p join dibs.queue as q on q.id = p.queue_id
    cross join lateral (select dibs._state(p.job_id) as state) as s
    where q.name = supervised.queue and p.name = supervised.name and dibs._may_see_queue(q.name)), 'none');
end;

comment on function dibs.supervised is
'Return the state of the newest job that looks at a supervised process: `scheduled`, `ready`, `blocked` or `running`;
`none` if it has ended or there is none.';
