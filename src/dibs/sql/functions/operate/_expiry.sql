-- Let a waiting job live longer.

create or replace function dibs._postponed_expiry(id uuid, expire_at timestamptz, later timestamptz) returns timestamptz
language sql stable
return (
  select least(_postponed_expiry.later, case when j.deadline >= _postponed_expiry.expire_at then j.deadline end)
  from dibs.job as j where j.id = _postponed_expiry.id);

comment on function dibs._postponed_expiry is
'Return `later`, the new time when a job expires, but not past its deadline. A job that expires after its deadline was
retried when the deadline had passed, which then no longer counts.';
