-- The row of a chore: read, taken, and whether it is due.

create or replace function dibs._read_chore(name text) returns dibs.chore
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
declare
  v_chore dibs.chore;
begin
  select c.* into v_chore from dibs.chore as c where c.name = _read_chore.name order by c.done_at desc limit 1;
  if not found then
    raise exception using errcode = 'DI010', message = format('there is no chore %L', name),
      hint = (select 'there are ' || string_agg(c.name, ', ' order by c.every, c.name) from dibs.chore as c);
  end if;
  return v_chore;
end
$$;

comment on function dibs._read_chore is 'The row of a chore.';

create or replace function dibs._take_chore(name text) returns dibs.chore
language plpgsql volatile
set enable_seqscan = off
set jit = off
as $$
declare
  v_chore dibs.chore;
begin
  select c.* into v_chore from dibs.chore as c where c.name = _take_chore.name order by c.done_at desc limit 1
  for update skip locked;
  return v_chore;
end
$$;

comment on function dibs._take_chore is
'Lock the row of a chore to the end of the transaction and return it; without a name when another does it now.';

create or replace function dibs._is_due(chore dibs.chore, at timestamptz) returns boolean
language sql immutable
return at >= (chore).due_at or at < (chore).done_at;

comment on function dibs._is_due is 'Whether a chore is due: its time has come, or the clock was stepped back since it was done.';
