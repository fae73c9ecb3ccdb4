-- The row of a chore: read it, lock it, record a step in it.

create or replace function dibs._read_chore(name text) returns dibs.chore
language plpgsql stable
as $$
declare
  v_chore dibs.chore;
begin
  -- A chore has one row. This order makes the index find its live version first, before dead ones.
  select c.* into v_chore from dibs.chore as c where c.name = _read_chore.name order by c.done_at desc limit 1;
  if not found then
    raise exception using errcode = 'DI010', message = format('there is no chore %L', name),
      hint = (select 'there are ' || string_agg(c.name, ', ' order by c.every, c.name) from dibs.chore as c);
  end if;
  return v_chore;
end
$$;

comment on function dibs._read_chore is 'Return the row of a chore; raise DI010 if there is no such chore.';

create or replace function dibs._lock_chore(name text) returns dibs.chore
language plpgsql volatile
as $$
declare
  v_chore dibs.chore;
begin
  select c.* into v_chore from dibs.chore as c where c.name = _lock_chore.name order by c.done_at desc limit 1
  for update skip locked;
  return v_chore;
end
$$;

comment on function dibs._lock_chore is
'Lock the row of a chore until the end of the transaction and return it. All fields are null if another transaction
holds it.';

create or replace function dibs._is_chore_due(chore dibs.chore, at timestamptz) returns boolean
language sql immutable
return at >= (chore).due_at or at < (chore).done_at;

comment on function dibs._is_chore_due is
'True if a chore is due: its time has come, or the clock was set back since it was done.';

create or replace function dibs._record_chore_step(
  chore dibs.chore, began timestamptz, more boolean, wait interval, place uuid, failures integer, error text)
returns interval
language plpgsql volatile
as $$
declare
  v_now constant timestamptz := clock_timestamp();
  -- The last step left more to do, so it made this one due at once. Add up the times of such steps.
  v_continues_round constant boolean := (chore).due_at <= (chore).done_at;
  v_took constant interval := v_now - began + case when v_continues_round then (chore).took else interval '0' end;
  v_reads_tables constant boolean := (chore).name in ('expire', 'roll_up', 'repair_groups', 'repair_limits');
  v_rest constant interval := dibs._cooldown(1) * v_took;  -- 20 times as long; tests shorten it.
  v_wait constant interval := case
    when wait is not null then wait
    when more then interval '0'
    when v_reads_tables then greatest((chore).every, v_rest)
    else (chore).every end;
begin
  update dibs.chore as c
  set done_at = v_now, due_at = v_now + v_wait, took = v_took, place = _record_chore_step.place,
    failures = _record_chore_step.failures, error = _record_chore_step.error
  where c.name = (chore).name and c.done_at = (chore).done_at;
  return v_wait;
end
$$;

comment on function dibs._record_chore_step is
'Record a step of a chore in its row, which the caller has locked, and return how long until the next: `wait`, if the
step names it (a failed step and some steps of schedule, prune and make_days do); no time if there is `more` to do;
otherwise the period of the chore. A chore that reads whole tables rests at least 20 times as long as its round took.';
