-- Runs that are not counted yet, found by the transaction that ended them and the mark of the last round.

create or replace function dibs._open_transactions(out next bigint, out open bigint[])
language sql volatile
begin atomic
  -- Our own transaction is in progress too: it may have ended runs, or end some later. The snapshot does not list it.
  select txid_snapshot_xmax(s), array(select txid_snapshot_xip(s)) || txid_current()
  from txid_current_snapshot() as s;
end;

comment on function dibs._open_transactions is
'Return a number of transactions (`next`), and the transactions below it that are in progress (`open`; our own is always
listed): all others below `next` have ended. Later ones may be in progress, too.';

create or replace function dibs._read_mark(next bigint, open bigint[]) returns dibs.stat_mark
language plpgsql volatile
as $$
declare
  v_mark dibs.stat_mark := (select m from dibs.stat_mark as m);
begin
  if v_mark.relation = 'dibs.attempt'::regclass and v_mark.next <= _read_mark.next then
    return v_mark;
  end if;
  -- Restored from a dump: the transaction numbers of its runs are another server's, and may be larger than ours. So go
  -- by the end of a run: up to the latest end that was counted before the dump, all runs are counted.
  v_mark.relation := 'dibs.attempt'::regclass;
  v_mark.restored_until := v_mark.ended_at;
  v_mark.next := (select least(_read_mark.next, min(o.xact), (
      select min(a.xact) from dibs.attempt as a where a.ended_at > v_mark.restored_until))
    from unnest(_read_mark.open) as o (xact));
  v_mark.open := '{}';
  return v_mark;
end
$$;

comment on function dibs._read_mark is
'Return the mark of the last round. After a restore from a dump, return a new mark that begins with the first run that
is not counted.';

create or replace function dibs._uncounted_runs(mark dibs.stat_mark, upto bigint, still_open bigint[])
returns setof dibs.attempt
language sql stable
begin atomic
  select a.* from dibs.attempt as a
  where (a.xact >= mark.next and a.xact < upto or a.xact = any (mark.open)) and a.xact <> all (still_open)
    and a.ended_at > mark.restored_until;
end;

comment on function dibs._uncounted_runs is
'Return runs that are not counted yet, of transactions that have ended: those from the mark to before `upto`, and those
that were open at the mark. `still_open`: transactions in progress now.';
