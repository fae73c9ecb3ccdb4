-- Groups of similar failures.

create or replace view dibs.failure_hours with (security_barrier) as
select e.fingerprint, q.name as queue, e.kind, e.hour as at, e.failures, e.first_at, e.last_at
from dibs.failure_count as e join dibs.queue as q on q.id = e.queue_id
where (not q.is_confined or coalesce(q.id = any ((select dibs.confined_to())::integer[]), true));

comment on view dibs.failure_hours is 'How often the failures of each group happened, by queue, kind and hour.';

create or replace view dibs.failures with (security_barrier) as
select g.fingerprint, g.error, g.message, g.frame, sum(e.failures)::bigint as failures, min(e.first_at) as first_at,
  max(e.last_at) as last_at, array_agg(distinct e.kind order by e.kind) as kinds,
  array_agg(distinct e.queue order by e.queue) as queues
from dibs.failure_hours as e join dibs.failure_group as g on g.fingerprint = e.fingerprint
group by g.fingerprint;

comment on view dibs.failures is
'Failures grouped by the class of the exception, its message without numbers and ids, and the innermost frame of your
code: how many within the retention of errors, when first and last, and of which kinds and queues. roll_up counts
them.';
