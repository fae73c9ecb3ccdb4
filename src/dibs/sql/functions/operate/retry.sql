-- retry: dead → ready, due now.

create or replace function dibs.retry(
  filter jsonb, max integer default 1000, after uuid default null, continues bigint default null,
  rate double precision default null, delay interval default interval '0', dry_run boolean default false,
  out matched bigint, out done bigint, out next uuid, out operation bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_ids uuid[];
  v_undo dibs.undo_job[];
  v_back uuid[];
begin
  perform dibs._check_redrive(null, null, null, retry.max, retry.rate, retry.delay);
  select s.ids, s.next into v_ids, retry.next
  from dibs._begin_step('retry',
    -- Somebody wanted the cancelled to end: a filter brings them back only if it asks for them.
    case when retry.filter ?| '{ids,states}'::text[] then retry.filter
      else retry.filter || '{"states": ["failed", "exhausted", "expired"]}' end,
    '{failed,exhausted,expired,cancelled}', retry.max, retry.after, retry.continues, v_now) as s;
  matched := cardinality(v_ids);
  done := 0;
  if retry.dry_run or matched = 0 then
    operation := retry.continues;
    return;
  end if;
  perform dibs._retake_fingerprints(v_ids, v_now);
  v_ids := array(
    select d.id from unnest(v_ids) as k (id)
    cross join lateral (select d.id from dibs.dead as d where d.id = k.id for update skip locked) as d);
  v_undo := dibs._undo_of_dead(v_ids);
  update dibs.dead as d set due_at = v_now where d.id = any (v_ids) and d.due_at > v_now;
  v_back := array(select r.id from dibs._revive(v_ids, retry.rate, retry.delay, v_now) as r where r.answer = 'redriven');
  done := cardinality(v_back);
  operation := dibs._audit('retry', retry.filter ->> 'queue', retry.filter, done,
    jsonb_build_object('rate', retry.rate), retry.continues);
  perform dibs._keep_undo(operation, v_undo, v_back);
end
$$;

comment on function dibs.retry is
'Bring dead jobs back, due now, with new attempts and a new TTL: a step of up to `max`, by filter, oldest first, which answers as `delete`
does. A filter without states or ids leaves cancelled jobs alone. `rate` is how many become due per second, from `delay` on. One whose
dedup key another job holds now stays dead.';
