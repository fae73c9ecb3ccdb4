-- Follow-ups: jobs that a completion enqueues.

create or replace function dibs._enqueue_follow_ups(
  ids uuid[], tokens uuid[], ended uuid[], ended_tokens uuid[], follow_ups jsonb) returns void
language plpgsql volatile
-- These undo the settings of `complete_many`: `_enqueue_batch` keeps the plans of its first caller in a session.
set enable_hashjoin = on
set enable_nestloop = on
as $$
declare
  v_jobs jsonb;
  v_parents uuid[];
begin
  if jsonb_typeof(follow_ups) <> 'array' or jsonb_array_length(follow_ups) <> cardinality(ids)
    or jsonb_path_exists(follow_ups, 'strict $[*] ? (@.type() != "array" && @.type() != "null")')
  then
    raise exception using errcode = 'DI010',
      message = format('follow_ups must be a JSON array of %s elements, one for each id', cardinality(ids)),
      hint = 'each element is null or an array of jobs';
  end if;
  select jsonb_agg(j.job order by f.item, j.n), array_agg(f.parent order by f.item, j.n) into v_jobs, v_parents
  from (
    -- A run that stands in the batch twice was ended once, and has the follow-ups of its first item.
    select distinct on (f.parent) f.parent, f.item, f.jobs
    from (
      select ids[e.item] as parent, e.item, e.jobs
      from jsonb_array_elements(follow_ups) with ordinality as e (jobs, item)
    ) as f
    where tokens[f.item] = ended_tokens[array_position(ended, f.parent)]
    order by f.parent, f.item
  ) as f
  cross join lateral jsonb_array_elements(
    case when jsonb_typeof(f.jobs) = 'array' then f.jobs else '[]' end) with ordinality as j (job, n);
  if v_jobs is null then
    return;
  end if;
  -- complete_many runs with the rights of the schema's owner, so check the caller's right to enqueue.
  if not has_function_privilege(session_user, 'dibs.enqueue_many(jsonb, bytea[], boolean)', 'execute') then
    raise exception using errcode = '42501',
      message = format('role %I may complete jobs but not enqueue, so its completions carry no follow-ups',
                       session_user),
      hint = 'grant dibs_producer to it, or let someone else enqueue';
  end if;
  insert into dibs.follow_up (id, parent)
  select e.id, v_parents[e.item] from dibs._enqueue_batch(v_jobs, null, false, is_follow_up => true) as e
  where e.outcome <> 'duplicate'
  on conflict on constraint follow_up_pkey do nothing;
end
$$;

comment on function dibs._enqueue_follow_ups is
'Enqueue the follow-ups of those items of a batch whose runs were completed now (`ended`), and note their parents.';

create or replace function dibs._forget_follow_ups() returns bigint
language plpgsql volatile
as $$
declare
  v_gone bigint;
begin
  -- An id that is younger than the longest retention still has its job.
  with gone as (
    delete from dibs.follow_up as f where f.id = any (array(
      select o.id from dibs.follow_up as o
      where o.id < dibs._id_floor(dibs.now() - (select max(q.retention) from dibs.queue as q))
        and not exists (select from dibs.job as j where j.id = o.id)
      order by o.id limit 10000))
    returning 1)
  select count(*) into v_gone from gone;
  return v_gone;
end
$$;

comment on function dibs._forget_follow_ups is
'Delete up to 10,000 rows of `follow_up`, the oldest first, whose follow-up job is gone. Return how many.';
