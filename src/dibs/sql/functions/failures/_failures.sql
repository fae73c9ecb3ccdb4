-- Groups of similar failures: the fingerprint of an error, and the counting of failures by group.

create or replace function dibs._message_without_ids(message text) returns text
language sql immutable strict parallel safe
return left(regexp_replace(regexp_replace(left(message, 2000),
  '[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|\m(?=[a-f]*[0-9])[0-9a-f]{8,}\M', 'N', 'g'),
  '[0-9]+([.,:][0-9]+)*', 'N', 'g'), 300);

comment on function dibs._message_without_ids is
'Replace ids and numbers of a message by N, and cut it to 300 characters.';

create or replace function dibs._error_line(error text) returns text
language sql immutable strict parallel safe
return coalesce(
  case when starts_with(error, 'Traceback (most recent call last):') then
    substring(right(error, 8000) from '.*\n +File "[^\n]*\n(?: [^\n]*\n)*([^ \n][^\n]*)') end,
  split_part(error, E'\n', 1));

comment on function dibs._error_line is
'The line that names an error: its first line; if it begins with a Python traceback, the line after the last frame.';

create or replace function dibs._innermost_frame(error text) returns text
language sql immutable strict parallel safe
begin atomic
  select regexp_replace(f.frame[1], '^.*/(?=[^/]+/[^/]+$)', '') || ' in ' || f.frame[2]
  from regexp_matches(right(error, 8000), '^ +File "([^"\n]+)", line [0-9]+, in ([^\n]+)$', 'gn')
    with ordinality as f (frame, n)
  order by
    f.frame[1] !~ '/(site|dist)-packages/|/lib/python[0-9.]+/|<frozen |/dibs/(worker|client|runtime|channels)/' desc,
    f.n desc
  limit 1;
end;

comment on function dibs._innermost_frame is
'The place where a Python error was raised, as "file in function": the innermost frame outside of libraries, or the
innermost frame if all are of libraries. Null without a traceback.';

create or replace function dibs._failure_key(error text) returns dibs.failure_key
language plpgsql immutable strict parallel safe
as $$
declare
  v_line constant text := dibs._error_line(error);
  v_class constant text := coalesce(substring(v_line from '^([A-Za-z_][A-Za-z0-9_.]*)(?::|$)'), '');
  v_key dibs.failure_key;
begin
  v_key.error := left(v_class, 200);
  v_key.message := dibs._message_without_ids(ltrim(substr(v_line, length(v_class) + 1), ': '));
  v_key.frame := left(dibs._innermost_frame(error), 300);
  v_key.fingerprint := left(encode(sha256(convert_to(
    concat_ws(E'\n', v_key.error, v_key.message, v_key.frame), 'UTF8')), 'hex'), 12);
  return v_key;
end
$$;

comment on function dibs._failure_key is
'The class, message and frame of an error that similar errors share, and the fingerprint of the three.';

create or replace function dibs._failure_fingerprint(error text) returns text
language sql immutable strict parallel safe
return (dibs._failure_key(error)).fingerprint;

comment on function dibs._failure_fingerprint is 'The fingerprint of the group that an error belongs to.';

create or replace function dibs._count_failures(mark dibs.stat_mark, upto bigint, open bigint[]) returns void
language plpgsql volatile
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_counts dibs.failure_count[];
  v_keys dibs.failure_key[];
begin
  with failed as materialized (
    select dibs._failure_key(a.error) as key, a.queue_id, a.id, a.ended_at
    from dibs._uncounted_runs(mark, upto, open) as a where a.outcome in ('failed', 'lost') and a.error is not null
  ), counted as (
    select (f.key).fingerprint, dibs._shown_queue(f.queue_id) as queue_id, coalesce(j.kind, '') as kind,
      date_trunc('hour', f.ended_at, 'UTC') as hour, count(*), min(f.ended_at), max(f.ended_at)
    from failed as f
    left join lateral (select j.kind from dibs.job as j where j.id = f.id offset 0) as j on true
    group by 1, 2, 3, 4
  )
  select array(select row(c.*)::dibs.failure_count from counted as c),
    array(select distinct on ((f.key).fingerprint) f.key from failed as f order by (f.key).fingerprint)
  into v_counts, v_keys;
  -- Lock the groups, so that _delete_old_failures does not delete one whose last old count it has just deleted.
  perform from dibs.failure_group as g
  where g.fingerprint = any (array(select k.fingerprint from unnest(v_keys) as k))
  for key share;
  insert into dibs.failure_group (fingerprint, error, message, frame)
  select k.fingerprint, k.error, k.message, k.frame from unnest(v_keys) as k on conflict do nothing;
  insert into dibs.failure_count as e select c.* from unnest(v_counts) as c
  on conflict on constraint failure_count_pkey do update
  set failures = e.failures + excluded.failures, first_at = least(e.first_at, excluded.first_at),
    last_at = greatest(e.last_at, excluded.last_at);
end
$$;

comment on function dibs._count_failures is
'Count the failures among the uncounted runs of transactions below `upto`. `open`: transactions in progress.';

create or replace function dibs._delete_old_failures(at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_old text[];
begin
  with gone as (
    delete from dibs.failure_count as e where e.ctid = any (array(
      select o.ctid from dibs.failure_count as o
      where o.hour < at - (select s.error_retention from dibs.setting as s) order by o.hour limit 10000))
    returning e.fingerprint)
  select array_agg(distinct g.fingerprint) into v_old from gone as g;
  -- Skip groups that _count_failures has locked. The next statement sees the counts of those that it has released.
  v_old := array(
    select g.fingerprint from dibs.failure_group as g where g.fingerprint = any (v_old) for update skip locked);
  delete from dibs.failure_group as g
  where g.fingerprint = any (v_old)
    and not exists (select from dibs.failure_count as e where e.fingerprint = g.fingerprint);
end
$$;

comment on function dibs._delete_old_failures is
'Delete up to 10,000 counts past the retention of errors, and groups that have none left.';
