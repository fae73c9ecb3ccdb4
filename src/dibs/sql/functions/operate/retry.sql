-- retry: make dead jobs ready again.

create or replace function dibs.retry(
  filter jsonb, max integer default 1000, after uuid default null, continues bigint default null,
  rate double precision default null, delay interval default interval '0', now boolean default false,
  dry_run boolean default false,
  out matched bigint, out done bigint, out next uuid, out operation bigint, out refused jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_states constant text[] := '{failed,exhausted,expired,cancelled}'::text[];
  v_now timestamptz := dibs.now();
  v_filter jsonb := dibs._retry_filter(retry.filter);
  v_keeps_due boolean := retry.now is not true;
  -- Each of the four is a subset of the one before.
  v_found uuid[];
  v_locked uuid[];
  v_chosen uuid[];  -- These still match.
  v_retried uuid[];  -- No other job has their dedup keys.
  v_undo dibs.undo_job[];
begin
  perform dibs._check_retry(retry.max, retry.rate, retry.delay);
  select s.ids, s.next into v_found, retry.next
  from dibs._begin_step('retry', v_filter, v_states, retry.max, retry.after, retry.continues, v_now) as s;
  matched := cardinality(v_found);
  done := 0;
  refused := '[]';
  if retry.dry_run or matched = 0 then
    operation := retry.continues;
    return;
  end if;
  -- Lock dedup keys before tickets, as every verb does that waits for both: an `edit` has the key and waits for the
  -- ticket.
  perform dibs._retake_dedup_keys(v_found, v_now);
  select array_agg(d.id order by d.id), coalesce(array_agg(d.id order by d.id) filter (where d.still_matches), '{}')
  into v_locked, v_chosen from dibs._lock_dead(v_found, dibs._read_filter('retry', v_filter, v_states)) as d;
  v_undo := dibs._snapshot_dead(v_chosen);
  v_retried := dibs._retry_jobs(v_chosen, retry.rate, coalesce(retry.delay, interval '0'), v_keeps_due, v_now);
  done := cardinality(v_retried);
  refused := dibs._refused_jobs(v_found, v_locked, v_chosen, v_retried);
  operation := dibs._audit('retry', retry.filter ->> 'queue', retry.filter, done,
    jsonb_build_object('rate', retry.rate), retry.continues);
  perform dibs._save_undo(operation, v_undo, v_retried);
end
$$;

comment on function dibs.retry is
'Make dead jobs ready again, with new attempts and a new TTL: a step of up to `max`, by filter, oldest first, with the
same answer as `delete`. A filter without states or ids leaves cancelled jobs alone. A job keeps a due time that is
still in the future, unless `now`; a deadline that has passed no longer counts. `rate` is how many become due per
second, the first after `delay`; so give each further step a `delay` that is longer by max / rate seconds. `refused`
lists the jobs that stay dead, each with the reason: `duplicate` if another job has its dedup key now, `busy` if another
transaction has locked it.';
