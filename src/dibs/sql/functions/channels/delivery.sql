-- Deliveries: the steps of a job's delivery. Each is a separate transaction; the newest says where a run goes on.

create or replace function dibs._delivery_stage(job_id uuid, before_seq bigint, out stage text, out detail jsonb)
language sql stable
begin atomic
  select
    case
      when newest.step is null then 'none'
      when newest.step = 'recorded' and newest.previous = 'accepted' then 'done'
      when newest.step = 'recorded' then 'none'  -- It was refused, and the handler knows: a retry sends again.
      else newest.step
    end, newest.detail
  from (select) as always  -- one row, even if the job has no step
  left join lateral (
    select d.step, d.detail, (
      select b.step from dibs.delivery as b where b.job_id = d.job_id and b.seq < d.seq and b.step <> 'recorded'
      order by b.seq desc limit 1) as previous
    from dibs.delivery as d
    where d.job_id = _delivery_stage.job_id and (before_seq is null or d.seq < before_seq)
    order by d.seq desc limit 1) as newest on true;
end;

comment on function dibs._delivery_stage is
'Return the stage of a job''s delivery, by its steps below `before_seq`, or by all of them if that is null.
`detail` is that of the newest of these steps.';

create or replace function dibs.delivery_stage(id uuid, out stage text, out detail jsonb)
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select s.stage, s.detail from dibs._delivery_stage(dibs._visible_job(delivery_stage.id), null) as s;
end;

comment on function dibs.delivery_stage is
'Worker protocol: return the stage of a job''s delivery. `none`: nothing was sent, or it was refused and the handler
knows. `sending`: it may or may not have gone out. `failed`: it was not sent, and will be tried again. `accepted` or
`refused`: by the provider, and the handler does not know yet. `done`: it was accepted, and the handler knows. `detail`
is that of the newest step.';

create or replace function dibs.begin_delivery(
  id uuid, token uuid, provider text, handlers text[] default '{}', out stage text, out detail jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_run integer;
  v_newest record;
  v_own_sending bigint;  -- the newest step, if this token has begun that send
begin
  perform dibs._check_isolation('begin_delivery');
  -- Lock the lease until this step is committed: no worker can take the job over or record another step of it.
  select l.run into v_run from dibs.lease as l
  where l.id = begin_delivery.id and l.token = begin_delivery.token for no key update;
  if v_run is null then
    perform dibs._require_lease('begin_delivery', begin_delivery.id, 'lost');  -- raises DI001
  end if;
  perform dibs._check_name('a provider', begin_delivery.provider);
  perform dibs._check_items('begin_delivery', handlers, 'names');
  -- Raise an error for a handler that may not be run before anything is sent.
  perform dibs.find_function(h) from unnest(handlers) as h;
  select d.seq, d.token, d.step into v_newest
  from dibs.delivery as d where d.job_id = begin_delivery.id order by d.seq desc limit 1;
  -- If this token's `sending` is the newest step, this call repeats one whose answer was lost. Give the same answer.
  if v_newest.step = 'sending' and v_newest.token = begin_delivery.token then
    v_own_sending := v_newest.seq;
  end if;
  select s.stage, s.detail into begin_delivery.stage, begin_delivery.detail
  from dibs._delivery_stage(begin_delivery.id, v_own_sending) as s;
  if v_own_sending is not null or stage in ('accepted', 'refused', 'done') then
    return;
  end if;
  insert into dibs.delivery (job_id, token, at, run, step, provider)
  values (begin_delivery.id, begin_delivery.token, dibs.now(), v_run, 'sending', begin_delivery.provider);
end
$$;

comment on function dibs.begin_delivery is
'Worker protocol: record that a message is about to be sent by a provider. Returns the stage before that. Send if it is
`none`, `failed` or `sending` (an earlier send was interrupted and may have gone out); otherwise nothing was recorded,
and do not send. A repeated call gives the same answer. Raises DI001 if the token does not hold the job.';

create or replace function dibs.record_delivery(id uuid, token uuid, step text, detail jsonb default null) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_last record;
  v_holder uuid;
begin
  if record_delivery.step is null or record_delivery.step not in ('accepted', 'failed', 'refused', 'recorded') then
    raise exception using errcode = 'DI010',
      message = format('a delivery is recorded as accepted, failed, refused or recorded, not as %L',
        record_delivery.step);
  end if;
  perform dibs._check_json('the detail of a delivery', record_delivery.detail, 'delivery');
  -- Lock the lease, even if another worker holds it by now, so that steps are recorded one after the other.
  select l.token into v_holder from dibs.lease as l where l.id = record_delivery.id for no key update;
  -- A repeated call may arrive after a later step of the same send.
  if exists (
    select from dibs.delivery as d
    where d.job_id = record_delivery.id and d.token = record_delivery.token and d.step = record_delivery.step
      and not exists (
        select from dibs.delivery as s where s.job_id = d.job_id and s.seq > d.seq and s.step = 'sending'))
  then
    return;
  end if;
  select d.token, d.run into v_last
  from dibs.delivery as d where d.job_id = record_delivery.id order by d.seq desc limit 1;
  -- A token that wrote the newest step may record how its send ended, even if it has lost the lease. Only the holder of
  -- the lease may record that the handler knows.
  if v_holder is distinct from record_delivery.token
    and (v_last.token is distinct from record_delivery.token or record_delivery.step = 'recorded')
  then
    perform dibs._require_lease('record_delivery', record_delivery.id, 'lost');  -- raises DI001
  end if;
  insert into dibs.delivery (job_id, token, at, run, step, detail)
  values (record_delivery.id, record_delivery.token, dibs.now(), coalesce(v_last.run, 0), record_delivery.step,
    record_delivery.detail);
end
$$;

comment on function dibs.record_delivery is
'Worker protocol: record how a send ended: `accepted` or `refused` by the provider, `failed` (certainly not sent, try
again), or `recorded` when the handler knows the result. Recording a step of a send again changes nothing. Raises DI001
if the token neither holds the job nor recorded its newest step.';

create or replace function dibs.run_handler(
  id uuid, token uuid, name text, payload jsonb, result jsonb default null, error text default null)
returns jsonb
language plpgsql volatile security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_envelope jsonb := dibs.run_function(run_handler.name, run_handler.payload);
  v_answer text;
begin
  if (v_envelope ->> 'success')::boolean then
    perform dibs.record_delivery(run_handler.id, run_handler.token, 'recorded');
    if run_handler.error is null then
      v_answer := dibs.complete(run_handler.id, run_handler.token, run_handler.result);
    else
      v_answer := (select f.answer from dibs.fail_many(
        array[run_handler.id], array[run_handler.token], array[run_handler.error], finals => array[true]) as f);
    end if;
    if v_answer <> 'ok' then
      -- Another call with this token has ended the job, and its answer was lost. Roll back what the handler did now.
      raise exception using errcode = 'DI001', message = format('job %s has ended already', run_handler.id);
    end if;
  else
    -- The handler's writes stay, so only the holder may make them: raise DI001 if the lease is lost.
    perform dibs.extend(run_handler.id, run_handler.token);
  end if;
  return v_envelope;
end
$$;

comment on function dibs.run_handler is
'Worker protocol: run a handler with the result of a delivery, record that it knows, and end the job: as failed with
`error`, without one as succeeded with `result`. All of that happens or nothing, so the handler takes effect once, and a
refused message is not sent again. Returns the envelope of the handler. Without success nothing is recorded and the job
does not end, but the writes of the handler stay. Raises DI001 if the token does not hold the job.';
