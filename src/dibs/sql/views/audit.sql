-- The audit, one row for each operation.

create or replace view dibs.audits with (security_barrier) as
select a.operation, a.at, s.until, a.role, a.actor, a.verb, a.queue, a.filter, s.jobs, a.detail, a.job_id
from dibs.audit as a
left join dibs.queue as q on q.name = a.queue
cross join lateral (
  select max(s.at) as until, sum(s.jobs)::bigint as jobs from dibs.audit as s where s.operation = a.operation) as s
where a.id = a.operation
  and ((select dibs.confined_to()) is null or q.id = any ((select dibs.confined_to())::integer[]))
-- A security barrier keeps the caller's ORDER BY out of the plan, so the view orders by the index itself.
order by a.operation desc;

comment on view dibs.audits is
'Every change that was made by hand: who, what, by which filter, how many jobs, from when until when; newest first.';
