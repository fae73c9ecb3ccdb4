-- clone: enqueue a copy of a job.

create or replace function dibs.clone(id uuid) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_job dibs.job;
  v_queue text;
  v_options jsonb;
  v_clone uuid;
begin
  select j.* into v_job from dibs.job as j where j.id = dibs._visible_job(clone.id);
  if not found then
    perform dibs._refuse_unknown_job(clone.id);
  end if;
  select coalesce(p.name, q.name) into v_queue
  from dibs.queue as q left join dibs.queue as p on p.id = q.shard_of where q.id = v_job.queue_id;
  -- Every column of job that is not left out here is an option of the same name. Null options are left out, so that the
  -- queue's values apply. jsonb_strip_nulls goes into nested objects, so payload and the like are added after it.
  v_options := jsonb_strip_nulls(to_jsonb(v_job)
    - '{id,due_at,queue_id,fingerprint,dedup_scope,size,group_name,payload,headers,backoff,body}'::text[]
    || jsonb_build_object('queue', v_queue, 'group', v_job.group_name,
      'deadline', case when v_job.deadline > dibs.now() then v_job.deadline end));
  select e.id into v_clone from dibs._enqueue_batch(
    jsonb_build_array(v_options || jsonb_build_object(
      'payload', v_job.payload, 'headers', v_job.headers, 'backoff', v_job.backoff)),
    bodies => case when v_job.body is not null then array[v_job.body] end, fresh => false) as e;
  perform dibs._audit('clone', v_queue, jobs => 1, detail => jsonb_build_object('of', clone.id, 'clone', v_clone));
  return v_clone;
end
$$;

comment on function dibs.clone is
'Enqueue a copy of a job, due now: the same payload, headers and options, but without its dedup key, and without a
deadline that has passed. Returns the id of the copy; raises DI002 if there is no such job.';
