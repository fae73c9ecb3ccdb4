-- purge: delete the waiting jobs of a queue.

create or replace function dibs.purge(
  queue text, max integer default 1000, after uuid default null, continues bigint default null,
  dry_run boolean default false,
  out matched bigint, out done bigint, out next uuid, out operation bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  -- Raises DI011 if the queue is null: a filter with a null queue would choose the jobs of all queues.
  v_queue integer := dibs._queue_number(purge.queue);
  v_filter jsonb := jsonb_build_object('queue', purge.queue);
  v_found uuid[];
  v_withdrawn dibs.ready[];
  v_uncounted uuid[];
  v_deleted dibs.ready[];
begin
  select s.ids, s.next into v_found, purge.next
  from dibs._begin_step('purge', v_filter, '{scheduled,ready,blocked}', purge.max,
    purge.after, purge.continues, v_now) as s;
  matched := cardinality(v_found);
  done := 0;
  if purge.dry_run or matched = 0 then
    operation := purge.continues;
    return;
  end if;
  -- `queues` leaves out a job that was moved to another queue since it was found.
  v_withdrawn := dibs._withdraw_tickets(dibs._find_deletable(v_found), v_now, queues => dibs._queue_numbers(v_queue));
  -- Keep a job that has run since _find_deletable and waits again.
  v_uncounted := dibs._uncounted_jobs(array(select w.id from unnest(v_withdrawn) as w));
  perform dibs._return_tickets(array(select w from unnest(v_withdrawn) as w where w.id = any (v_uncounted)), v_now);
  v_deleted := array(select w from unnest(v_withdrawn) as w where w.id <> all (v_uncounted));
  perform dibs._free_dedup_keys(array_agg(w.fingerprint), array_agg(w.id)) from unnest(v_deleted) as w;
  done := dibs._delete_jobs(array(select w.id from unnest(v_deleted) as w));
  operation := dibs._audit('purge', purge.queue, v_filter, done, continues => purge.continues);
end
$$;

comment on function dibs.purge is
'Delete the waiting jobs of a queue with all their data, as if they had never been enqueued: a step of up to `max`, with
the same answer as `delete`. Running jobs go on.';
