-- expire: waiting past its TTL or deadline → dead.

create or replace function dibs._expire_batch(chunk integer, after uuid, out expired bigint, out next uuid)
language plpgsql volatile
as $$
declare
  v_now timestamptz := dibs.now();
  v_late uuid[];
  v_paused integer[] := array(select q.id from dibs.queue as q where q.paused_at is not null);
begin
  perform dibs._check_isolation('expire');
  perform dibs._check_count('expire', _expire_batch.chunk);
  -- Walk the primary keys in chunks, so that no hot table needs an index on expire_at.
  with waiting as materialized (
    (select r.id, r.expire_at, r.queue_id from dibs.ready as r
     where r.id > _expire_batch.after order by r.id limit _expire_batch.chunk)
    union all
    (select b.id, b.expire_at, b.queue_id from dibs.blocked as b
     where b.id > _expire_batch.after order by b.id limit _expire_batch.chunk)
  ), walked as materialized (
    select w.* from waiting as w order by w.id limit _expire_batch.chunk
  )
  select array_agg(w.id order by w.id) filter (
      where w.expire_at <= v_now and w.queue_id <> all (v_paused)),
    (select l.id from walked as l offset _expire_batch.chunk - 1 limit 1)
  into v_late, _expire_batch.next from walked as w;
  -- Lock the tickets and look again: a queue may have been paused, or a job given more time, in the meantime. Skip
  -- locked tickets, which are being claimed or cancelled; the next walk finds those that are not.
  v_paused := array(select q.id from dibs.queue as q where q.paused_at is not null);
  v_late := array(
    select r.id from dibs.ready as r
    where r.id = any (v_late) and r.expire_at <= v_now and r.queue_id <> all (v_paused)
    order by r.id for update skip locked)
    || array(
    select b.id from dibs.blocked as b
    where b.id = any (v_late) and b.expire_at <= v_now and b.queue_id <> all (v_paused)
    order by b.id for update skip locked);
  select count(*) into _expire_batch.expired
  from dibs._end_waiting_jobs(v_late, 'expired', 'past its time to live or its deadline', v_now);
end
$$;

comment on function dibs._expire_batch is
'End the jobs that are past their TTL or deadline among the next `chunk` waiting jobs above the id `after`. Return how
many, and `next`: the last id of the chunk, or null at the end.';

create or replace function dibs.expire(
  chunk integer default 10000, after uuid default '00000000-0000-0000-0000-000000000000',
  out expired bigint, out next uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select e.expired, e.next into expire.expired, expire.next from dibs._expire_batch(chunk, after) as e;
  -- This is the id of a job, which may be of a queue that the caller may not see.
  expire.next := dibs._visible_job(expire.next);
end
$$;

comment on function dibs.expire is
'Worker protocol: end waiting jobs that are past their TTL or deadline, a chunk at a time: look at up to `chunk` waiting
jobs above the id `after`. Return how many it ended, and the id to go on from (`next`): null at the end, and for a role
that is confined to other queues. Jobs of paused queues do not expire.';
