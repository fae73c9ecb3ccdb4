-- A batch of jobs, as a verb reads and answers it.

create or replace function dibs._read_batch(batch jsonb) returns dibs.batch_needs
language plpgsql immutable
as $$
declare
  v_names constant text[] := dibs._field_names('dibs.job_request');
  v_plain constant text[] := '{queue,kind,payload,id}'::text[];
  v_dedup constant text[] := '{dedup_key,dedup,dedup_scope,dedup_for,on_duplicate}'::text[];
  v_unknown text;
  v_wrong text;
  v_needs dibs.batch_needs;
begin
  if coalesce(jsonb_typeof(batch), 'null') <> 'array' then
    raise exception using errcode = 'DI010',
      message = format('enqueue_many takes a JSON array of jobs, not %s',
                       coalesce('a JSON ' || jsonb_typeof(batch), 'null')),
      hint = 'pass [{"queue": "mail", "kind": "welcome", "payload": {}}, …]';
  end if;
  if jsonb_array_length(batch) > dibs._bound('batch') then
    raise exception using errcode = 'DI010',
      message = format('enqueue_many takes at most %s jobs at once, not %s', dibs._bound('batch'), jsonb_array_length(batch)),
      hint = 'split it into several calls';
  end if;
  -- Most jobs have no options, and what is strict costs nothing for them.
  select count(*), count(*) filter (where b.job ? 'id'), count(b.options), count(*) filter (where b.options ?| v_dedup),
    count(b.options ->> 'group'), count(b.options ->> 'resources'), array_agg(distinct coalesce(b.job ->> 'queue', '')),
    min((select k from jsonb_object_keys(b.options) as k where k <> all (v_names) limit 1))
      filter (where jsonb_typeof(b.options) = 'object' and b.options - v_names <> '{}'),
    min(jsonb_typeof(b.options)) filter (where jsonb_typeof(b.options) <> 'object')
  into v_needs.jobs, v_needs.ids, v_needs.options, v_needs.keys, v_needs.groups, v_needs.resources, v_needs.queues, v_unknown, v_wrong
  from (
    select e as job, case when jsonb_typeof(e) = 'object' then nullif(e - v_plain, '{}') else e end as options
    from jsonb_array_elements(batch) as e offset 0
  ) as b;
  if v_wrong is not null then
    raise exception using errcode = 'DI010',
      message = format('each job of a batch is a JSON object, not a JSON %s', v_wrong),
      hint = 'pass [{"queue": "mail", "kind": "welcome", "payload": {}}, …]';
  end if;
  if v_unknown is not null then
    perform dibs._refuse_unknown_name('DI010', 'job', 'option', v_unknown, v_names);
  end if;
  return v_needs;
end
$$;

comment on function dibs._read_batch is 'What a batch of jobs asks for; refuses what is not a batch of jobs.';

create or replace function dibs._find_existing_ids(jobs jsonb) returns uuid[]
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

comment on function dibs._find_existing_ids is
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
        where a.id = k.id and a.token = k.token and coalesce(a.outcome, 'succeeded') = any (outcomes) limit 1) then 'already'
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
    case a.answer when 'ok' then p.state when 'already' then dibs._state(a.id) end, p.due_at
  from dibs._answer_batch(ids, tokens, ended, ended_tokens, '{failed,cancelled}') as a
  left join unnest(states, dues) with ordinality as p (state, due_at, n) on p.n = a.place
  order by a.item;
end
$$;

comment on function dibs._answer_failures is
'As _answer_batch, and where each job that failed went.';
