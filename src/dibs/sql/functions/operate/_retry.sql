-- Parts of retry: check its arguments, make dead jobs ready, and report the ones that stay dead.

create or replace function dibs._check_retry(max integer, rate double precision, delay interval) returns void
language plpgsql stable
as $$
begin
  perform dibs._check_count('retry', max);
  if rate <= 0 or max / rate > 31536000 then
    raise exception using errcode = 'DI010',
      message = format('a rate of %s jobs per second makes no sense for %s jobs', rate, max),
      hint = 'give a rate above 0 at which they are all due within a year';
  end if;
  perform dibs._check_delay('retry', delay);
end
$$;

comment on function dibs._check_retry is 'Raise DI010 for a `max`, a rate or a delay that is out of range.';

create or replace function dibs._retry_filter(filter jsonb) returns jsonb
language sql immutable parallel safe
return case
  when jsonb_typeof(filter) = 'object'
    and coalesce(jsonb_typeof(filter -> 'ids'), 'null') = 'null'
    and coalesce(jsonb_typeof(filter -> 'states'), 'null') = 'null'
  then filter || '{"states": ["failed", "exhausted", "expired"]}'
  else filter end;

comment on function dibs._retry_filter is
'Add states to the filter of a retry that gives neither ids nor states (or null for them), so that it leaves out
cancelled jobs: somebody wanted these to end. Return any other filter unchanged.';

create or replace function dibs._retry_jobs(
  ids uuid[], rate double precision, delay interval, keeps_due boolean, at timestamptz) returns uuid[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_retried uuid[];
  v_tickets dibs.ready[];
begin
  with chosen as materialized (
    select d.*, j.group_name, j.cost, coalesce(j.ttl, q.ttl) as ttl,
      case when j.deadline > at then j.deadline end as deadline,
      row_number() over (order by k.n) as place,
      dibs._job_lease(j.lease, j.lease_growth, j.lease_cap, q, 1) as own_lease,
      -- Another job has the dedup key now. A key whose scope is a window of time was never the job's alone.
      d.fingerprint is not null and f.id is distinct from d.id and j.dedup_scope is distinct from 'window'
        as is_duplicate
    from unnest(ids) with ordinality as k (id, n)
    join dibs.dead as d on d.id = k.id
    join dibs.job as j on j.id = d.id
    join dibs.queue as q on q.id = d.queue_id
    left join dibs.fingerprint as f on f.hash = d.fingerprint
  ), gone as (
    delete from dibs.dead as d using chosen as c where d.id = c.id and not c.is_duplicate
    returning c.*, greatest(
      case when keeps_due then c.due_at end,
      at + delay + coalesce((c.place - 1) / rate * interval '1 second', interval '0')) as new_due_at
  )
  select array_agg(g.id), array_agg(dibs._ticket(
    id => g.id, due_at => g.new_due_at, expire_at => dibs._expiry(g.new_due_at, g.ttl, g.deadline),
    queue_id => g.queue_id, run => g.run, charged => 0, losses => 0, priority => g.priority, own_lease => g.own_lease,
    history => g.history, fingerprint => g.fingerprint, group_key => dibs._group_key(g.queue_id, g.group_name),
    cost => g.cost))
  into v_retried, v_tickets from gone as g;
  perform dibs._return_tickets(v_tickets, at);
  return coalesce(v_retried, '{}');
end
$$;

comment on function dibs._retry_jobs is
'Make dead jobs ready with new attempts. The caller has locked their tickets, after it retook their dedup keys. The
first is due after `delay`, the others at `rate` per second (null: all at once), in this order; with `keeps_due` none
before its old due time. Return their ids; jobs whose dedup key another job has now stay dead.';

create or replace function dibs._refused_jobs(found uuid[], locked uuid[], chosen uuid[], retried uuid[]) returns jsonb
language sql stable
return (
  select coalesce(jsonb_agg(jsonb_build_object('id', r.id, 'reason', r.reason) order by r.id), '[]') from (
    select k.id, 'duplicate' as reason from (select unnest(chosen) except select unnest(retried)) as k (id)
    union all
    select k.id, 'busy' from (select unnest(found) except select unnest(locked)) as k (id)
    cross join lateral (select from dibs.dead as d where d.id = k.id offset 0) as d
  ) as r);

comment on function dibs._refused_jobs is
'Return the jobs of a step that are refused, as JSON: `duplicate` if another job has the dedup key, `busy` if another
transaction had locked the ticket. A job that no longer matches the filter is in neither list.';
