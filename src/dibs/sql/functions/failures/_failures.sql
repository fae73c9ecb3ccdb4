-- Groups of similar failures: the fingerprint of an error, and the counting of failures by group.

create or replace function dibs._message_without_ids(message text) returns text
language sql immutable strict parallel safe
return left(
  regexp_replace(
    regexp_replace(
      left(message, 2000),
      '[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}'  -- a UUID
      '|0x[0-9a-fA-F]+'  -- an address, such as 0x7f3a
      '|\m(?=[a-f]*[0-9])[0-9a-f]{8,}\M',  -- a hash: 8 or more hexadecimal digits, at least one of them 0-9
      'N', 'g'),
    '[0-9]+([.,:][0-9]+)*',  -- a number, a version or a time: 1,000.5, 12:30
    'N', 'g'),
  300);

comment on function dibs._message_without_ids is
'Return the first 300 characters of a message, with N in place of each id and number.';

create or replace function dibs._error_ends(error text) returns text
language sql immutable strict parallel safe
return case when length(error) > 16000 then left(error, 8000) || E'\n' || right(error, 8000) else error end;

comment on function dibs._error_ends is
'Return the first and last 8,000 characters of a long error, so that a search in it is fast; otherwise all of it.';

create or replace function dibs._error_line(error text) returns text
language sql immutable strict parallel safe
return coalesce(
  case when starts_with(error, 'Traceback (most recent call last):') then
    substring(dibs._error_ends(error) from
      '.*\n +File "[^\n]*\n'  -- all up to the last frame: .* is greedy, and matches line breaks
      '(?: [^\n]*\n)*'  -- the code of that frame, which is indented
      '([^ \n][^\n]*)')  -- the line to return, such as "KeyError: 5"
  when starts_with(error, '  + Exception Group Traceback (most recent call last):') then
    substring(error from '\n  \| ([^ \n][^\n]*)')  -- the first line behind the bar that is not indented
  end,
  split_part(error, E'\n', 1));

comment on function dibs._error_line is
'Return the line with the class and the message of an error. That is its first line. In a text that begins with a Python
traceback it is the line after the last frame, and in one that begins with the traceback of an exception group the line
of the group. Without such a line, the first line is returned, which then says only "Traceback".';

create or replace function dibs._innermost_frame(error text) returns text
language sql immutable strict parallel safe
begin atomic
  select regexp_replace(f.file_and_function[1], '^.*/(?=[^/]+/[^/]+$)', '')  -- shop/tasks.py of /srv/shop/tasks.py
    || ' in ' || f.file_and_function[2]
  -- The flag n: ^ and $ match at each line. The frames of an exception group begin with a bar.
  from regexp_matches(dibs._error_ends(error), '^[ |]+File "([^"\n]+)", line [0-9]+, in ([^\n]+)$', 'gn')
    with ordinality as f (file_and_function, n)
  order by  -- false first: the frames of the user's code
    f.file_and_function[1]
      ~ '/(site|dist)-packages/|/lib/python[0-9.]+t?/|<frozen |/dibs/(worker|client|runtime|channels)/',
    f.n desc
  limit 1;
end;

comment on function dibs._innermost_frame is
'Return the place where a Python error was raised, as "file in function": the innermost frame outside of libraries, or
the innermost frame if all are of libraries. Null without a frame. In a chain of exceptions it may be a frame of the
cause.';

create or replace function dibs._failure_key(error text) returns dibs.failure_key
language plpgsql immutable strict parallel safe
as $$
declare
  v_line constant text := dibs._error_line(error);
  -- A class is one word before a colon, or the whole line: "shop.tasks.charge.<locals>.Refused: card 5".
  v_class constant text := coalesce(substring(v_line from '^([A-Za-z_][A-Za-z0-9_.<>]*)(?::|$)'), '');
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
'Return the class, the message and the frame of an error, which similar errors share, and the fingerprint of the three.
Without a class, the message is the whole line.';

create or replace function dibs._failure_fingerprint(error text) returns text
language sql immutable strict parallel safe
return (dibs._failure_key(error)).fingerprint;

comment on function dibs._failure_fingerprint is 'Return the fingerprint of the group that an error belongs to.';

-- The planner cannot know that few runs are uncounted. Without the first three settings it reads whole tables to join
-- them; without the last it spends time to compile a plan that it believes to be expensive.
create or replace function dibs._count_failures(mark dibs.stat_mark, upto bigint, still_open bigint[]) returns void
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
  with failed as materialized (  -- so that each key is made once
    select dibs._failure_key(a.error) as key, a.queue_id, a.id, a.ended_at
    from dibs._uncounted_runs(mark, upto, still_open) as a
    where a.outcome in ('failed', 'lost') and a.error is not null
  ), counted as (  -- the columns of failure_count
    select (f.key).fingerprint, dibs._shown_queue(f.queue_id) as queue_id, coalesce(j.kind, '') as kind,
      date_trunc('hour', f.ended_at, 'UTC') as hour, count(*) as failures, min(f.ended_at) as first_at,
      max(f.ended_at) as last_at
    from failed as f
    -- `offset 0` keeps this a lookup by id for each run.
    left join lateral (select j.kind from dibs.job as j where j.id = f.id offset 0) as j on true
    group by 1, 2, 3, 4
  )
  select array(select row(c.*)::dibs.failure_count from counted as c),
    array(select distinct on ((f.key).fingerprint) f.key from failed as f order by (f.key).fingerprint)
  into v_counts, v_keys;
  -- _delete_old_failures may delete the old counts of a group while we add a new one. The lock makes it keep the group.
  perform from dibs.failure_group as g
  where g.fingerprint = any (array(select k.fingerprint from unnest(v_keys) as k))
  for key share;
  insert into dibs.failure_group (fingerprint, error, message, frame)
  select k.fingerprint, k.error, k.message, k.frame from unnest(v_keys) as k on conflict do nothing;
  insert into dibs.failure_count as old (fingerprint, queue_id, kind, hour, failures, first_at, last_at)
  select c.fingerprint, c.queue_id, c.kind, c.hour, c.failures, c.first_at, c.last_at from unnest(v_counts) as c
  on conflict on constraint failure_count_pkey do update
  set failures = old.failures + excluded.failures, first_at = least(old.first_at, excluded.first_at),
    last_at = greatest(old.last_at, excluded.last_at);
end
$$;

comment on function dibs._count_failures is
'Add the failures among the uncounted runs to the counts of their groups, and insert new groups. A failed or lost run
without an error text is not counted. `mark` is the end of the last round, `upto` that of this round, and `still_open`
are transactions in progress, whose runs a later round counts. The caller moves the mark in the same transaction, so
each failure is counted once.';

create or replace function dibs._delete_old_failures(at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_touched text[];  -- fingerprints of groups that lost a count
  v_locked text[];
begin
  with gone as (
    delete from dibs.failure_count as c where c.ctid = any (array(
      select old.ctid from dibs.failure_count as old
      -- The retention begins when the hour ends.
      where old.hour < at - interval '1 hour' - (select s.error_retention from dibs.setting as s)
      order by old.hour limit 10000))
    returning c.fingerprint)
  select array_agg(distinct gone.fingerprint) into v_touched from gone;
  -- Skip a group that _count_failures has locked, because it is adding a count to the group. The deletion below is a
  -- separate statement, so that it sees each count that was committed before the locks were taken.
  v_locked := array(
    select g.fingerprint from dibs.failure_group as g where g.fingerprint = any (v_touched) for update skip locked);
  delete from dibs.failure_group as g
  where g.fingerprint = any (v_locked)
    and not exists (select from dibs.failure_count as c where c.fingerprint = g.fingerprint);
end
$$;

comment on function dibs._delete_old_failures is
'Delete up to 10,000 counts past the retention of errors, and those of their groups that have no count left.';
