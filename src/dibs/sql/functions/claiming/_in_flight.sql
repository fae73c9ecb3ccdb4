-- Claims in flight. A change of a limit or of a group's policy waits for the claims that began before it.

create or replace function dibs._begin_change() returns void
language plpgsql volatile
as $$
begin
  -- Claims go on: this mode excludes only itself.
  lock table dibs.claim_lock in exclusive mode;
end
$$;

comment on function dibs._begin_change is
'Let one transaction at a time change limits and policies of groups. Call it before anything else is locked: a
transaction that waited here with locks could block the change that it waits for.';

create or replace function dibs._stop_claims(tries integer) returns boolean
language plpgsql volatile
set lock_timeout = '100ms'
as $$
begin
  -- Claims that begin meanwhile wait behind this lock, so try for a moment at a time.
  for n in 1 .. tries loop
    begin
      lock table dibs.claim_lock in access exclusive mode;
      return true;
    exception when lock_not_available or deadlock_detected then
      null;
    end;
  end loop;
  return false;
end
$$;

comment on function dibs._stop_claims is
'Wait until no claim is in flight, up to a tenth of a second for each try. Return true if so: then none begins until
this transaction ends. Return false if one stays open: then claims go on.';

create or replace function dibs._stop_claims_or_warn() returns void
language plpgsql volatile
as $$
begin
  if not dibs._stop_claims(10) then
    raise warning 'jobs were claimed in a transaction that is still open; those are not counted'
      using hint = 'commit a claim at once, or set it again afterwards';
  end if;
end
$$;

comment on function dibs._stop_claims_or_warn is
'Wait up to a second until no claim is in flight. Then none begins until this transaction ends. If one stays open, warn
instead, and claims go on.';

create or replace function dibs._try_lock_leases(ids uuid[]) returns void
language plpgsql volatile
set lock_timeout = '100ms'
as $$
begin
  -- A failed try releases all its locks. So a transaction that ends some of these runs, in another order, need not fail
  -- with a deadlock.
  for n in 1 .. 7 loop
    begin
      perform from unnest(ids) as k (id)
      cross join lateral (select from dibs.lease as l where l.id = k.id for update) as l;
      return;
    exception when lock_not_available or deadlock_detected then
      null;
    end;
  end loop;
end
$$;

comment on function dibs._try_lock_leases is
'Lock all these leases, or none of them if one stays locked for all seven tries, a tenth of a second each: its run is
ending in a long transaction. A lock waits for a heartbeat to end. `ids` must be sorted.';

create or replace function dibs._lock_groups(of_group uuid) returns void
language plpgsql volatile
set lock_timeout = '400ms'
as $$
begin
  -- A failed try releases all its locks, so that other groups are served meanwhile.
  for n in 1 .. 5 loop
    begin
      perform from dibs.group_lock as l
      where of_group = dibs._nil_id() or l.bucket = dibs._group_bucket(of_group) order by l.bucket for update;
      return;
    exception when lock_not_available or deadlock_detected then
      null;
    end;
  end loop;
  raise exception using errcode = 'lock_not_available',
    message = 'jobs of limited groups were claimed in a transaction that is still open',
    hint = 'commit a claim at once, and set it again afterwards';
end
$$;

comment on function dibs._lock_groups is
'Lock the group with this key, or all groups for the nil id: no claim serves them meanwhile. Refuse if a claim keeps one
locked for two seconds.';
