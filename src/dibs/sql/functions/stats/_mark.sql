-- Which runs are new: by the number of the transaction that ended each one, compared with the last round's mark.

create or replace function dibs._open_transactions(out next bigint, out open bigint[])
language sql volatile
begin atomic
  -- We may have ended runs ourselves, and may yet: our own transaction, which no snapshot of ours lists, is open, too.
  select txid_snapshot_xmax(s), array(select txid_snapshot_xip(s)) || txid_current()
  from txid_current_snapshot() as s;
end;

comment on function dibs._open_transactions is
'The transactions that have not ended, and the number from which on none has.';

create or replace function dibs._read_mark(next bigint, open bigint[]) returns dibs.stat_mark
language plpgsql volatile
as $$
declare
  v_mark dibs.stat_mark := (select m from dibs.stat_mark as m);
begin
  if v_mark.relation = 'dibs.attempt'::regclass and v_mark.next <= _read_mark.next then
    return v_mark;
  end if;
  -- Restored from a dump: the numbers in it are another server's. Some may lie ahead here, and only the time tells that
  -- those runs are counted.
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
'How far the runs were counted. In a database restored from a dump: the first run that is not counted.';

create or replace function dibs._uncounted_runs(mark dibs.stat_mark, upto bigint, open bigint[]) returns setof dibs.attempt
language sql stable
begin atomic
  select a.* from dibs.attempt as a
  where (a.xact >= mark.next and a.xact < upto or a.xact = any (mark.open)) and a.xact <> all (_uncounted_runs.open)
    and a.ended_at > mark.since;
end;

comment on function dibs._uncounted_runs is 'The runs that are not counted yet, of transactions that have ended and whose number is below `upto`.';
