-- A job takes the place of the one that holds its dedup key.

create or replace function dibs._lock_dedup_keys(ids uuid[]) returns void
language plpgsql volatile
as $$
begin
  perform from dibs.job as j join dibs.fingerprint as f on f.hash = j.fingerprint and f.id = j.id
  where j.id = any (ids) order by f.hash for update of f;
end
$$;

comment on function dibs._lock_dedup_keys is
'Lock the dedup keys of jobs before their tickets, as an enqueue does that replaces them: it waits for this transaction, and does not take a
ticket that is only changed for one that is claimed.';

create or replace function dibs._lock_ticket(id uuid) returns boolean
language plpgsql volatile
set lock_timeout = '500ms'
as $$
begin
  -- It may move between the two looks, so look again for as long as it waits somewhere.
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

comment on function dibs._lock_ticket is 'Lock the ticket of a waiting job; false if it waits no more, or if another transaction keeps it locked.';

create or replace function dibs._replace_holder(id uuid, by uuid, at timestamptz) returns boolean
language plpgsql volatile
as $$
begin
  -- A ticket that is locked for a moment may be claimed, or only brought to wait elsewhere. One that stays locked is being claimed in an
  -- open transaction, which a producer does not wait for.
  if not dibs._lock_ticket(id) then
    return false;
  end if;
  perform dibs._end_waiting_jobs(array[_replace_holder.id], 'cancelled', 'replaced by job ' || by, at);
  return true;
end
$$;

comment on function dibs._replace_holder is 'End a waiting job because another takes its place; false if it does not wait any more, or is being claimed.';
