-- The bell. NOTIFY takes a lock of the whole cluster at commit, so only one committer of a queue at a time rings;
-- the trigger is deferred so that the try-lock is taken at the end: taken on insert, a long transaction would
-- hold it and silence the queue for everyone.

create function dibs.ring() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_try_advisory_xact_lock(20002, new.queue_id) then
    perform pg_notify('dibs', (select q.name from dibs.queue as q where q.id = new.queue_id));
  end if;
  return null;
end
$$;

comment on function dibs.ring is 'Ring the bell for a queue, unless another committer is ringing it just now.';

create constraint trigger ready_ring after insert on dibs.ready
deferrable initially deferred for each row when (new.ring) execute function dibs.ring();
