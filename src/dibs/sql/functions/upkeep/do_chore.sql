-- do_chore: what has to be done now and then, by the first that finds it due. There is no leader whose death would matter.

create or replace function dibs.do_chore(
  name text, force boolean default false, out outcome text, out counts jsonb, out more boolean, out wait interval,
  out cron jsonb, out failures integer, out error text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_began timestamptz := clock_timestamp();
  v_old dibs.chore := dibs._read_chore(do_chore.name);
  v_new dibs.chore;
begin
  perform dibs._check_isolation('do_chore');
  counts := '{}';
  more := false;
  cron := '[]';
  -- Read before it is locked: a lock costs a transaction id.
  if coalesce(force, false) or dibs._is_due(v_old, v_began) then
    v_old := dibs._take_chore(v_old.name);
    outcome := case when v_old.name is null then 'busy' end;
  end if;
  if outcome is null and not coalesce(force, false) and not dibs._is_due(v_old, v_began) then
    outcome := 'early';
  end if;
  if outcome is not null then
    wait := case outcome when 'early' then v_old.due_at - v_began else interval '1 second' end;
    return;
  end if;

  v_new := v_old;
  begin
    select s.counts, s.next, s.more, s.wait, s.cron into counts, v_new.place, more, wait, cron
    from dibs._do_step(v_old.name, v_old.place) as s;
    counts := coalesce(counts, '{}');
    more := coalesce(more, false);
    cron := coalesce(cron, '[]');
    outcome := 'done';
    failures := 0;
  exception when others or query_canceled then
    -- It must not keep others from being done, nor be tried again at once; a timeout is no exception to that.
    outcome := 'failed';
    failures := v_old.failures + 1;
    error := sqlerrm;
    wait := least(v_old.every, interval '30 seconds');
    v_new.place := null;
  end;
  v_new.done_at := clock_timestamp();
  v_new.took := v_new.done_at - v_began + case when v_old.due_at <= v_old.done_at then v_old.took else interval '0' end;
  wait := case
    when wait is not null then wait
    when more then interval '0'
    when v_old.name in ('expire', 'roll_up', 'repair_groups', 'repair_limits')
      then greatest(v_old.every, dibs._rest(1) * v_new.took)
    else v_old.every end;
  update dibs.chore as c
  set done_at = v_new.done_at, due_at = v_new.done_at + wait, took = v_new.took, place = v_new.place,
    failures = do_chore.failures, error = do_chore.error
  where c.name = v_old.name and c.done_at = v_old.done_at;
end
$$;

comment on function dibs.do_chore is
'Do one step of a chore of the upkeep, if it is due or forced and nobody else is doing it. Any number of processes may ask: the
outcome is `done`, `early` (it is not due), `busy` (another is doing it) or `failed` (`error` says why; it was noted, and is tried
again soon). `wait` is when to ask again, and `more` whether there is more to do now. `cron` are expressions that only a client
can read, to be answered by `fire`.';
