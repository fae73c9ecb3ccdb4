-- Runs that are not counted yet, found by the transaction that ended them and the mark of the last round.

create or replace function dibs._open_transactions(out next bigint, out open bigint[])
language sql volatile
begin atomic
  -- Add our own transaction, which our snapshot does not list: it may have ended runs, or end some later.
  select txid_snapshot_xmax(s), array(select txid_snapshot_xip(s)) || txid_current()
  from txid_current_snapshot() as s;
end;

comment on function dibs._open_transactions is
'The transactions in progress (`open`), and the first number that no transaction has yet (`next`). Transactions below
`next` that are not open have ended.';

create or replace function dibs._read_mark(next bigint, open bigint[]) returns dibs.stat_mark
language plpgsql volatile
as $$
declare
  v_mark dibs.stat_mark := (select m from dibs.stat_mark as m);
begin
  if v_mark.relation = 'dibs.attempt'::regclass and v_mark.next <= _read_mark.next then
    return v_mark;
  end if;
  -- Restored from a dump: its transaction numbers are another server's, and may be larger than ours. So take runs as
  -- counted by their end, up to the latest end that was counted before the dump.
  v_mark.relation := 'dibs.attempt'::regclass;
  v_mark.since := v_mark.ended_at;
  v_mark.next := (select least(_read_mark.next, min(o.xact), (
      select min(a.xact) from dibs.attempt as a where a.ended_at > v_mark.since))
    from unnest(_read_mark.open) as o (xact));
  v_mark.open := '{}';
  return v_mark;
end
$$;

comment on function dibs._read_mark is
'The mark of the last round. After a restore from a dump, a new mark that begins with the first run that is not
counted.';

create or replace function dibs._uncounted_runs(mark dibs.stat_mark, upto bigint, open bigint[])
returns setof dibs.attempt
language sql stable
begin atomic
  select a.* from dibs.attempt as a
  where (a.xact >= mark.next and a.xact < upto or a.xact = any (mark.open)) and a.xact <> all (_uncounted_runs.open)
    and a.ended_at > mark.since;
end;

comment on function dibs._uncounted_runs is
'Runs that are not counted yet: of transactions below `upto` that have ended. `open`: transactions in progress.';
