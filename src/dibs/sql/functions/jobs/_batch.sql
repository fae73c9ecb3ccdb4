-- A batch of jobs, as a verb reads and answers it.

create or replace function dibs._read_batch(batch jsonb) returns dibs.batch_needs
language plpgsql immutable
as $$
declare
  v_names constant text[] := dibs._names_of('dibs.job_request');
  v_dedup constant text[] := '{dedup_key,dedup,dedup_scope,dedup_for,on_duplicate}'::text[];
  v_unknown text;
  v_needs dibs.batch_needs;
begin
  if coalesce(jsonb_typeof(batch), 'null') <> 'array' then
    raise exception using errcode = 'DI010',
      message = format('enqueue_many takes a JSON array of jobs, not %s',
                       coalesce('a JSON ' || jsonb_typeof(batch), 'null')),
      hint = 'pass [{"queue": "mail", "kind": "welcome", "payload": {}}, …]';
  end if;
  select count(*), count(e ->> 'id'), count(*) filter (where e ?| v_dedup), count(e ->> 'group'),
    count(e ->> 'resources'), array_agg(distinct coalesce(e ->> 'queue', '')),
    min((select k from jsonb_object_keys(e) as k where k <> all (v_names) limit 1)) filter (where e - v_names <> '{}')
  into v_needs.jobs, v_needs.ids, v_needs.keys, v_needs.groups, v_needs.resources, v_needs.queues, v_unknown
  from jsonb_array_elements(batch) as e;
  if v_unknown is not null then
    perform dibs._refuse_name('DI010', 'job', 'option', v_unknown, v_names);
  end if;
  return v_needs;
end
$$;

comment on function dibs._read_batch is 'What a batch of jobs asks for; refuses what is not a batch of jobs.';

create or replace function dibs._refuse_jobs(jobs jsonb, bodies bytea[], at timestamptz) returns void
language plpgsql stable
as $$
declare
  v_job record;
begin
  for v_job in
    select a.ordinality as ord, a.queue, q.payload_limit, q.retention, a.delay, a.due_at, a.deadline, a.id,
      coalesce(octet_length(bodies[a.ordinality]), length(a.body) * 3 / 4, pg_column_size(a.payload)) as size
    from jsonb_populate_recordset(null::dibs.job_request, jobs) with ordinality as a
    join dibs.queue as q on q.name = a.queue order by a.ordinality
  loop
    if v_job.size > v_job.payload_limit then
      raise exception using errcode = 'DI012',
        message = format('the payload of job %s has %s bytes; queue %L takes at most %s',
                         v_job.ord, v_job.size, v_job.queue, v_job.payload_limit),
        hint = 'store it elsewhere and send its address, or raise the queue''s payload_limit';
    end if;
    if v_job.deadline >= timestamptz '9000-01-01' then
      raise exception using errcode = 'DI010',
        message = format('job %s has the deadline %s, which is too far away', v_job.ord, v_job.deadline),
        hint = 'give a deadline before the year 9000, or none';
    end if;
    if v_job.delay not between interval '0' and interval '10 years'
      or v_job.due_at > at + interval '10 years' or num_nonnulls(v_job.delay, v_job.due_at) = 2 then
      raise exception using errcode = 'DI010',
        message = format('job %s cannot be due then: delay %s, due_at %s', v_job.ord,
                         coalesce(v_job.delay::text, 'none'), coalesce(v_job.due_at::text, 'none')),
        hint = 'give either a delay from 0 to 10 years, or a due_at at most 10 years ahead';
    end if;
    if v_job.id >= dibs._id_floor(at + interval '1 hour') or v_job.id < dibs._id_floor(at - v_job.retention) then
      raise exception using errcode = 'DI013',
        message = format('job %s has the id %s, whose time %s is more than an hour ahead or older than retention',
                         v_job.ord, v_job.id, dibs.id_time(v_job.id)),
        hint = 'ids are UUIDv7 by the database''s clock: make them with dibs.make_id(), or give none';
    end if;
  end loop;
end
$$;

comment on function dibs._refuse_jobs is
'Say in a sentence why the first job of a batch that cannot be taken is refused.';

create or replace function dibs._known_ids(jobs jsonb) returns uuid[]
language sql stable
begin atomic
  select array_agg(
    case when j.id is not null or a.n > 1 then a.id end order by a.ord)
  from (
    select (e.job ->> 'id')::uuid as id, e.ord,
      row_number() over (partition by (e.job ->> 'id')::uuid order by e.ord) as n
    from jsonb_array_elements(jobs) with ordinality as e (job, ord)
  ) as a
  left join lateral (select j.id from dibs.job as j where j.id = a.id offset 0) as j on true;
end;

comment on function dibs._known_ids is
'For each job of a batch whose id is already there, or stands earlier in the batch: that id; otherwise null.';

-- Joined by hash: the verbs switch that off for their own statements, and an array searched for each item is quadratic.
create or replace function dibs._answer_batch(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], outcomes dibs.outcome[])
returns table (item integer, id uuid, answer text, place bigint)
language sql stable
set enable_hashjoin = on
set enable_nestloop = off
begin atomic
  select k.n::integer, k.id,
    case
      when e.n is not null then 'ok'
      -- A scalar subquery and not EXISTS, which the planner may turn into a hash of the whole history.
      when (
        select true from dibs.attempt as a
        where a.id = k.id and a.token = k.token and a.outcome = any (outcomes) limit 1) then 'already'
      else 'lost'
    end,
    e.n
  from unnest(ids, tokens) with ordinality as k (id, token, n)
  left join unnest(ended, ended_tokens) with ordinality as e (id, token, n) on e.id = k.id and e.token = k.token
  order by k.n;
end;

comment on function dibs._answer_batch is
'The answer for each item of a batch that ended runs: `ok`, `already` by the same token, or `lost`; and its place among
those that ended.';

create or replace function dibs._answer_failures(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], states text[], dues timestamptz[])
returns table (item integer, id uuid, answer text, state text, due_at timestamptz)
language plpgsql volatile
set enable_hashjoin = on
as $$
begin
  return query
  select a.item, a.id, a.answer,
    case a.answer when 'ok' then p.state when 'already' then dibs.state(a.id) end, p.due_at
  from dibs._answer_batch(ids, tokens, ended, ended_tokens, '{failed,cancelled}') as a
  left join unnest(states, dues) with ordinality as p (state, due_at, n) on p.n = a.place
  order by a.item;
end
$$;

comment on function dibs._answer_failures is
'As _answer_batch, and where each job that failed went.';
