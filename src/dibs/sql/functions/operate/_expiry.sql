-- Let a waiting job live longer.

create or replace function dibs._postponed_expiry(id uuid, expire_at timestamptz, new_expire_at timestamptz)
returns timestamptz
language sql stable
return (
  select least(_postponed_expiry.new_expire_at, case when j.deadline >= _postponed_expiry.expire_at then j.deadline end)
  from dibs.job as j where j.id = _postponed_expiry.id);

comment on function dibs._postponed_expiry is
'Return `new_expire_at`, or the deadline of the job if that is earlier. The deadline does not count if the job already
expires after it: then it had passed when the job was retried.';
