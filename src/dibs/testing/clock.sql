-- Virtual time: replaces the only clock of one database, so that tests move it instead of sleeping.
-- Never install this where real work is done.

create table if not exists dibs.test_clock (
  one boolean not null default true constraint test_clock_pkey primary key constraint test_clock_one_row check (one),
  frozen_at timestamptz,
  shift interval not null default interval '0'
);
insert into dibs.test_clock default values on conflict do nothing;

create or replace function dibs.now() returns timestamptz
language sql volatile parallel safe security definer
set search_path = pg_catalog, pg_temp
return (select coalesce(c.frozen_at, clock_timestamp()) + c.shift from dibs.test_clock as c);
