-- Allowed functions, deliveries, supervised processes, the error log, and confined roles.

create or replace view dibs.functions with (security_barrier) as
select f.name, f.timeout, f.owner, f.allowed_at, f.allowed_by,
  case
    when pg_get_userbyid(p.proowner) <> f.owner then format('it belongs to %I now', pg_get_userbyid(p.proowner))
    else dibs.function_flaw(coalesce(p.oid, 0))
  end as flaw
from dibs.allowed_function as f
left join pg_catalog.pg_namespace as n on n.nspname = f.schema_name
left join pg_catalog.pg_proc as p
  on p.pronamespace = n.oid and p.proname = f.function_name and p.pronargs = 1
    and p.proargtypes[0] = 'jsonb'::regtype
where (select dibs.confined_to()) is null or has_function_privilege(session_user, p.oid, 'execute');

comment on view dibs.functions is
'The allow-list of functions, and the reason why a function on it may not be run (`flaw`), if any.';

create or replace view dibs.deliveries with (security_barrier) as
select d.job_id, j.kind, max(d.provider) as provider, count(*) filter (where d.step = 'sending') as sends,
  count(*) filter (where d.step = 'sending' and (
    d.next = 'sending' or d.next is null and l.id is null or d.next_detail ? 'unknown')) as interrupted,
  min(d.at) filter (where d.step = 'sending') as sent_at,
  max(d.at) filter (where d.step = 'accepted') as accepted_at,
  max(d.at) filter (where d.step = 'refused') as refused_at,
  max(d.at) filter (where d.step = 'recorded') as recorded_at,
  (array_agg(d.step order by d.seq desc))[1] as step
from (
  select d.*, lead(d.step) over steps as next, lead(d.detail) over steps as next_detail
  from dibs.delivery as d window steps as (partition by d.job_id order by d.seq)
) as d
left join dibs.job as j on j.id = d.job_id
left join dibs.lease as l on l.id = d.job_id
where (select dibs.confined_to()) is null or j.queue_id = any ((select dibs.confined_to())::integer[])
group by d.job_id, j.kind;

comment on view dibs.deliveries is
'The messages that channels sent: how often each was sent, when it was accepted or refused, and how many sends were
interrupted between the provider and the record, so that the message may have gone out twice.';

create or replace view dibs.supervised_processes with (security_barrier) as
select p.name, q.name as queue, p.job_id,
  case
    when r.id is not null and r.due_at > n.at then 'scheduled'
    when r.id is not null then 'ready'
    when b.id is not null then 'blocked'
    when l.id is not null then 'running'
    else 'none'
  end as state,
  r.due_at
from dibs.supervised_process as p join dibs.queue as q on q.id = p.queue_id
cross join lateral (select dibs.now() as at) as n
left join dibs.ready as r on r.id = p.job_id
left join dibs.blocked as b on b.id = p.job_id
left join dibs.lease as l on l.id = p.job_id
where (select dibs.confined_to()) is null or q.id = any ((select dibs.confined_to())::integer[]);

comment on view dibs.supervised_processes is
'Supervised processes, and the state of the job that looks at each next: `none` if there is no such job.';

create or replace view dibs.error_log with (security_barrier) as
select e.id, e.at, e.source, e.job_id, q.name as queue, j.kind, e.message
from dibs.error as e
left join dibs.job as j on j.id = e.job_id
left join dibs.queue as q on q.id = j.queue_id
where (select dibs.confined_to()) is null or j.queue_id = any ((select dibs.confined_to())::integer[])
-- The security barrier keeps the order of a caller's query out of the plan. Callers order by this, newest first.
order by e.id desc;

comment on view dibs.error_log is
'The log of operational errors, newest first, with queue and kind of the job that an error is about.';

create or replace view dibs.confinements with (security_barrier) as
select c.role::text as role, array_agg(q.name order by q.name) as queues
from dibs.confinement as c join dibs.queue as q on q.id = c.queue_id
where (select dibs.confined_to()) is null or pg_has_role(session_user, c.role, 'member')
group by c.role;

comment on view dibs.confinements is 'Confined roles, and the queues that each may use.';
