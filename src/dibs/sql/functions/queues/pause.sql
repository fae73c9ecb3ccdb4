-- pause, resume: stop handing out the jobs of a queue, and go on.

create or replace function dibs.pause(queue text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id integer := dibs._queue_number(queue);
  v_now timestamptz := dibs.now();
begin
  update dibs.queue as q set paused_at = v_now where q.id = v_id and q.paused_at is null;
  if not found then
    return false;
  end if;
  perform dibs._lock_shards(v_id);
  update dibs.queue as q set paused_at = v_now where q.shard_of = v_id;
  perform dibs._audit('pause', queue);
  return true;
end
$$;

comment on function dibs.pause is
'Stop handing out the jobs of a queue, until `resume`. Enqueues go on, running jobs finish, and no job expires. Returns
true if the queue was not paused before.';

create or replace function dibs.resume(queue text, extend interval default null,
  out paused_at timestamptz, out late bigint, out extended bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_id integer := dibs._queue_number(queue);
  v_now timestamptz := dibs.now();
  v_queues integer[];
  v_ids uuid[];
begin
  select q.paused_at into resume.paused_at from dibs.queue as q where q.id = v_id for update;
  perform dibs._lock_shards(v_id);
  v_queues := dibs._queue_numbers(v_id);
  select count(*) into resume.late
  from (select r.expire_at from dibs.ready as r where r.queue_id = any (v_queues)
        union all select b.expire_at from dibs.blocked as b where b.queue_id = any (v_queues)) as w
  where w.expire_at <= v_now;
  resume.extended := 0;
  if resume.extend is not null then
    perform dibs._check_delay('resume', resume.extend);
    -- Lock dedup keys before tickets, as every verb does: a producer that replaces one of these jobs waits at its key.
    perform dibs._lock_dedup_keys(array(
      select r.id from dibs.ready as r where r.queue_id = any (v_queues) and r.expire_at <= v_now
      union all
      select b.id from dibs.blocked as b where b.queue_id = any (v_queues) and b.expire_at <= v_now));
    -- Lock by id and skip locked tickets, as every verb on many tickets does. Jobs past their deadline stay expired.
    with late as materialized (
      select r.id, dibs._postponed_expiry(r.id, r.expire_at, v_now + resume.extend) as later
      from dibs.ready as r where r.queue_id = any (v_queues) and r.expire_at <= v_now
      order by r.id for update skip locked
    ), postponed as (
      update dibs.ready as r set expire_at = l.later from late as l
      where r.id = l.id and l.later > v_now returning r.id)
    select count(*), array_agg(p.id) into resume.extended, v_ids from postponed as p;
    -- A claim that met only expired jobs in a group looks there again a moment later: let it look at once. Blocked
    -- tickets have no pointers.
    perform dibs._add_pointers(v_ids, v_now);
    with late as materialized (
      select b.id, dibs._postponed_expiry(b.id, b.expire_at, v_now + resume.extend) as later
      from dibs.blocked as b where b.queue_id = any (v_queues) and b.expire_at <= v_now
      order by b.id for update skip locked
    ), postponed as (
      update dibs.blocked as b set expire_at = l.later from late as l
      where b.id = l.id and l.later > v_now returning 1)
    select resume.extended + count(*) into resume.extended from postponed;
  end if;
  update dibs.queue as q set paused_at = null where q.id = v_id or q.shard_of = v_id;
  if (select q.ring from dibs.queue as q where q.id = v_id) then
    perform pg_notify('dibs', n::text) from unnest(v_queues) as n;
  end if;
  perform dibs._audit('resume', resume.queue, jobs => nullif(resume.extended, 0),
    detail => jsonb_build_object('extend', resume.extend))
  where num_nonnulls(resume.paused_at, resume.extend) > 0;
end
$$;

comment on function dibs.resume is
'Hand out the jobs of a queue again. Returns since when it was paused (null if it was not), and how many waiting jobs
are past their TTL or deadline (`late`). With `extend`, these live that much longer from now on, but not past their
deadline (`extended`); otherwise they expire.';
