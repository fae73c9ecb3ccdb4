-- Lock the dedup key and the ticket of a job that may be replaced.

create or replace function dibs._lock_dedup_keys(ids uuid[]) returns void
language plpgsql volatile
as $$
begin
  perform from dibs.job as j join dibs.fingerprint as f on f.hash = j.fingerprint and f.id = j.id
  where j.id = any (ids) order by f.hash for update of f;
end
$$;

comment on function dibs._lock_dedup_keys is
'Lock the dedup keys of jobs before their tickets are changed. An enqueue that replaces one of the jobs then waits for
this transaction. Otherwise it would find the ticket locked, and take it for one that is being claimed.';

create or replace function dibs._lock_ticket(id uuid) returns boolean
language plpgsql volatile
set lock_timeout = '500ms'
as $$
begin
  -- The ticket may move between the two statements, so look again for as long as the job waits.
  while dibs._is_waiting(id) loop
    perform from dibs.ready as r where r.id = _lock_ticket.id for update;
    if found then
      return true;
    end if;
    perform from dibs.blocked as b where b.id = _lock_ticket.id for update;
    if found then
      return true;
    end if;
  end loop;
  return false;
exception when lock_not_available then
  return false;
end
$$;

comment on function dibs._lock_ticket is
'Lock the ticket of a waiting job. Return false if the job does not wait, or if its ticket stays locked: a claim in an
open transaction is taking it, and a producer does not wait for that.';
