-- The next look at a supervised process: at most one waits, however often it is requested.

create or replace function dibs.supervise(
  name text, payload jsonb, delay interval default '0', queue text default 'supervisors',
  kind text default 'db_function', options jsonb default '{}', out job_id uuid, out outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_due timestamptz := dibs.now() + dibs._check_delay('supervise', coalesce(delay, interval '0'));
  v_old_due timestamptz;
  v_queue_id integer;
begin
  perform dibs._ensure_queues(array[queue]);
  v_queue_id := (select q.id from dibs.queue as q where q.name = queue);
  loop
    select p.job_id into supervise.job_id from dibs.supervised_process as p
    where p.queue_id = v_queue_id and p.name = supervise.name for update;
    exit when found;
    insert into dibs.supervised_process (queue_id, name, job_id) values (v_queue_id, supervise.name, dibs._nil_id())
    on conflict do nothing;
  end loop;
  -- The ticket may move between ready and blocked while we search one after the other. So try again while
  -- _is_waiting, in a single statement, finds it in either.
  loop
    select r.due_at into v_old_due from dibs.ready as r where r.id = supervise.job_id for update;
    if found then
      outcome := 'duplicate';
      if v_old_due > v_due then
        update dibs.ready as r set due_at = v_due where r.id = supervise.job_id;
        outcome := 'hastened';
      end if;
      return;
    end if;
    perform from dibs.blocked as b where b.id = supervise.job_id for update;
    if found then
      outcome := 'duplicate';
      return;
    end if;
    exit when not dibs._is_waiting(supervise.job_id);
  end loop;
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
'Make sure that a supervised process (a business process, such as an order) is looked at again after `delay`, by a job
of that kind and payload. At most one such job waits for each name and queue: a second call answers `duplicate`, or
`hastened` if it made the job due sooner. A running job does not count, so a supervisor can ask for its own next run.
`options` are those of a job. First lock the row in your own tables that stands for the process.';

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
'The state of the job that looks at a supervised process next: `scheduled`, `ready`, `blocked`, `running`, or `none` if
there is no such job.';
