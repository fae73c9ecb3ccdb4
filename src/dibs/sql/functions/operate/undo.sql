-- undo: undo a cancel_where or a retry.

create or replace function dibs.undo(
  operation bigint, max integer default 1000, after uuid default null, continues bigint default null,
  dry_run boolean default false,
  out matched bigint, out done bigint, out next uuid, out audit bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_operation record;
  v_is_cancel boolean;
  v_jobs dibs.undo_job[];
begin
  perform dibs._check_isolation('undo'), dibs._check_count('undo', undo.max),
    dibs._check_continues('undo', undo.continues);
  select a.verb, a.at, a.queue into v_operation from dibs.audit as a
  where a.id = undo.operation and a.operation = a.id and (a.role = session_user or dibs._may_see_queue(a.queue));
  perform dibs._check_undo(undo.operation, v_operation.verb, v_operation.at, v_now);
  v_jobs := array(
    select u from dibs.undo_job as u
    where u.operation = undo.operation and u.id > coalesce(undo.after, dibs._nil_id())
      and not (dibs._is_confined() and dibs._is_hidden_job(u.id))
    order by u.id limit undo.max);
  matched := cardinality(v_jobs);
  done := 0;
  audit := undo.continues;
  next := case when matched = undo.max then (v_jobs[matched]).id end;
  if undo.dry_run or matched = 0 then
    return;
  end if;
  v_is_cancel := v_operation.verb = 'cancel_where';
  done := case when v_is_cancel then dibs._undo_cancel(v_jobs, v_now) else dibs._undo_retry(v_jobs, v_now) end;
  -- Keep the snapshot of a job that is still as the operation left it, so that undo can be repeated for it: its ticket
  -- was locked, another job has its dedup key, or a later operation has to be undone first.
  delete from dibs.undo_job as u
  where u.operation = undo.operation and u.id = any (array(select j.id from unnest(v_jobs) as j))
    and not exists (select from dibs.dead as d
      where v_is_cancel and d.id = u.id and d.state = 'cancelled' and d.ended_at = u.ended_at)
    and not exists (select from dibs.ready as r where not v_is_cancel and r.id = u.id and r.run = u.run)
    and not exists (select from dibs.blocked as b where not v_is_cancel and b.id = u.id and b.run = u.run);
  audit := dibs._audit('undo', v_operation.queue, null, done,
    jsonb_build_object('operation', undo.operation), undo.continues);
end
$$;

comment on function dibs.undo is
'Undo a `cancel_where` or a `retry` of the last hour, job by job: cancelled jobs wait as before, retried jobs are dead
as before. A job that has run or ended since, or was changed by a later one of the two, stays as it is. A job that
another transaction has locked, or whose dedup key another job has, can be undone later: call it again. A step of up to
`max`, with the same answer as `delete`; `audit` is the number of this operation itself.';

create or replace function dibs._check_undo(operation bigint, verb text, began timestamptz, at timestamptz) returns void
language plpgsql stable
as $$
begin
  if verb is null then
    raise exception using errcode = 'DI010',
      message = format('there is no operation %s', coalesce(operation::text, 'null')),
      hint = 'see the view dibs.audits';
  end if;
  if verb <> all ('{cancel_where,retry}') then
    raise exception using errcode = 'DI010',
      message = format('operation %s is a %s, which cannot be undone', operation, verb),
      hint = 'cancel_where and retry can';
  end if;
  if began <= at - dibs._undo_period() then
    raise exception using errcode = 'DI010',
      message = format('operation %s is of %s, and can no longer be undone', operation, dibs._utc_text(began)),
      hint = format('that is possible for %s', dibs._undo_period());
  end if;
end
$$;

comment on function dibs._check_undo is
'Raise DI010 if an operation does not exist, is not of a verb that can be undone, or is too old.';
