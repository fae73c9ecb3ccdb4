-- Old transactions, prepared transactions and idle replication slots, which keep vacuum from removing dead rows.

create or replace function dibs._find_old_transactions(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'old-transaction', case when a.xact_start < at - interval '6 hours' then 'error' else 'warning' end,
    format('a transaction of %s (pid %s, %s) has been open for %s', a.usename, a.pid, a.state,
      dibs._duration_text(at - a.xact_start)),
    'While it is open, vacuum removes no row that was deleted since, in any table. dibs stays fast; your own tables do'
      ' not.',
    format('end it: select pg_terminate_backend(%s); and set idle_in_transaction_session_timeout', a.pid), a.pid::text
  from pg_catalog.pg_stat_activity as a
  where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
    and (a.backend_xmin is not null or a.backend_xid is not null or a.state like 'idle in transaction%')
    and a.xact_start < at - interval '15 minutes'
  order by a.xact_start limit 20;
end;

comment on function dibs._find_old_transactions is 'Find transactions that have been open for 15 minutes or more.';

create or replace function dibs._find_prepared_transactions(at timestamptz) returns setof dibs.finding
language sql stable
begin atomic
  select 'prepared-transaction', case when p.prepared < at - interval '6 hours' then 'error' else 'warning' end,
    format('the transaction %L of %s was prepared %s ago and never ended', p.gid, p.owner,
      dibs._duration_text(at - p.prepared)),
    'It outlives its connection and every restart, keeps its locks, and holds vacuum back.',
    format('in its database: rollback prepared %L; or commit prepared %L;', p.gid, p.gid), p.gid
  from pg_catalog.pg_prepared_xacts as p
  where p.database = current_database() and p.prepared < at - interval '15 minutes'
  order by p.prepared limit 20;
end;

comment on function dibs._find_prepared_transactions is
'Find transactions that were prepared 15 minutes ago or more, and never committed or rolled back.';

create or replace function dibs._find_idle_slots() returns setof dibs.finding
language sql stable
begin atomic
  select 'replication-slot', 'error',
    format('the replication slot %s is lost: the server has removed WAL that its reader needs', s.slot_name),
    'Its reader cannot go on.',
    format('drop it, and set its reader up again: select pg_drop_replication_slot(%L);', s.slot_name), s.slot_name
  from pg_catalog.pg_replication_slots as s where s.wal_status = 'lost'
  union all (
  select 'replication-slot', case when s.wal_status = 'unreserved' then 'error' else 'warning' end,
    format('the replication slot %s is not in use, and keeps %s of WAL%s', s.slot_name,
      pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)),
      case when s.xmin is not null or s.catalog_xmin is not null then ' and the rows that were deleted since' end),
    'It keeps all WAL since its reader was last there, until the disk is full; with hot_standby_feedback it holds'
      ' vacuum back, too.',
    format('start its reader, or drop it: select pg_drop_replication_slot(%L);', s.slot_name), s.slot_name
  from pg_catalog.pg_replication_slots as s
  where not s.active and not s.temporary and not pg_is_in_recovery() and s.restart_lsn is not null
    and s.wal_status <> 'lost'
  order by s.slot_name limit 20);
end;

comment on function dibs._find_idle_slots is 'Find replication slots that no process reads, or can read any more.';

create or replace function dibs._find_hidden_transactions() returns setof dibs.finding
language sql stable
begin atomic
  select 'blind', 'note',
    format('%s, which dibs belongs to, may not see the transactions of other roles', current_user),
    'So the doctor cannot say which of them holds vacuum back.',
    format('grant pg_read_all_stats to %I;', current_user), current_user
  where not pg_has_role(current_user, 'pg_read_all_stats', 'usage');
end;

comment on function dibs._find_hidden_transactions is
'Find that the owner of dibs may not see the transactions of other roles.';
