-- do_chore: do a step of a chore, if no other process does. There is no leader whose death would matter.

create or replace function dibs.do_chore(
  name text, force boolean default false, out outcome text, out counts jsonb, out more boolean, out wait interval,
  out cron jsonb, out failures integer, out error text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_forced constant boolean := coalesce(force, false);
  v_chore dibs.chore := dibs._read_chore(do_chore.name);
  v_now timestamptz := clock_timestamp();
  v_is_due boolean := v_forced or dibs._is_chore_due(v_chore, v_now);
  v_next uuid;
begin
  perform dibs._check_isolation('do_chore');
  counts := '{}';
  more := false;
  cron := '[]';
  -- Lock the row only if the chore is due: a lock costs a transaction id.
  if v_is_due then
    v_chore := dibs._lock_chore(v_chore.name);
    if v_chore.name is null then
      outcome := 'busy';
      wait := interval '1 second';
      return;
    end if;
    -- Look again: another process may have done the chore just before we locked its row.
    v_now := clock_timestamp();
    v_is_due := v_forced or dibs._is_chore_due(v_chore, v_now);
  end if;
  if not v_is_due then
    outcome := 'early';
    -- Random, so that not all processes come at the same moment.
    wait := v_chore.due_at - v_now + random() * interval '0.2 seconds';
    return;
  end if;
  begin
    select coalesce(s.counts, '{}'), coalesce(s.more, false), s.wait, coalesce(s.cron, '[]'), s.next
    into counts, more, wait, cron, v_next from dibs._run_chore_step(v_chore.name, v_chore.place) as s;
    outcome := 'done';
    failures := 0;
  exception when others or query_canceled then
    -- A failure must not stop other chores, nor be repeated at once. That includes a statement timeout, which OTHERS
    -- does not catch. The next try begins a new round (v_next is null): the step that fails may fail again, and the
    -- steps before it must go on being done.
    outcome := 'failed';
    failures := v_chore.failures + 1;
    error := sqlerrm;
    wait := least(v_chore.every * 2 ^ least(v_chore.failures, 5), interval '30 seconds');
  end;
  wait := dibs._record_chore_step(v_chore, v_now, more, wait, v_next, failures, error);
  -- A confined caller must not see the error: it may name any queue.
  if error is not null and dibs.confined_to() is not null then
    error := 'the view chores says why, to those who may see every queue';
  end if;
end
$$;

comment on function dibs.do_chore is
'Worker protocol: do one step of a chore of the upkeep, if it is due (or forced) and no other process does it at that
moment. Any number of processes may ask: `outcome` is `done`, `early` (it is not due), `busy` (another process does it)
or `failed` (`error` says why; the error is recorded, and the chore is tried again soon). `wait` is when to ask again,
and `more` is true if there is more to do now. `cron` are expressions that only a client can read, to be answered by
`fire`.';
