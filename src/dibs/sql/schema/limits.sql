-- Limits are tickets, not counts: a limit of k has k units, which are free in limit_unit or held by a lease.

create table dibs.limit_rule (
  id integer generated always as identity constraint limit_rule_pkey primary key,
  scope text not null,
  name text not null,
  concurrency integer,
  rate double precision,
  burst integer,
  debt integer not null default 0,
  declared integer,
  declared_rate double precision,
  is_set boolean not null default true,
  forget_after xid8,
  constraint limit_rule_scope_known check (scope in ('queue', 'kind', 'resource')),
  constraint limit_rule_name_shape check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
  constraint limit_rule_concurrency_range check (concurrency between 0 and 1000000),
  constraint limit_rule_rate_range check (rate between 0.000001 and 1000000),
  constraint limit_rule_burst_range check (burst between 1 and least(1000000, rate * 10000000000)),
  constraint limit_rule_something check (is_set = (num_nonnulls(concurrency, rate) > 0))
);
comment on table dibs.limit_rule is 'Limits that were set, of queues, kinds and named resources. debt: units that are to be used up, after it was lowered.';
comment on column dibs.limit_rule.is_set is
'False once the limit was unset or has got or lost a concurrency. Nothing is taken from it any more; its row stays while jobs wait for it, so that a
claim brings them back.';
comment on column dibs.limit_rule.forget_after is
'Of a limit that is not set any more: when all transactions below this one have ended, no claim knows it.';
create unique index limit_rule_name_key on dibs.limit_rule (scope, name) where is_set;
comment on column dibs.limit_rule.declared is
'The concurrency that code declared last, if any; what was set by hand since then counts, until the code changes.';
comment on column dibs.limit_rule.declared_rate is 'The same for the rate.';

create sequence dibs.limit_unit_n_seq;
create table dibs.limit_unit (
  n bigint not null default nextval('dibs.limit_unit_n_seq'),
  freed_at timestamptz not null,
  limit_id integer not null,
  units integer not null,
  ring boolean not null default false
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.limit_unit_n_seq owned by dibs.limit_unit.n;
comment on table dibs.limit_unit is 'Free units of limits. Insert, delete.';
create index limit_unit_limit_idx on dibs.limit_unit (limit_id, n desc);

create function dibs._ring_unit() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform dibs._ring_for_limit(new.limit_id);
  return null;
end
$$;

comment on function dibs._ring_unit is 'Ring for those that wait for a limit that has a free unit again.';

create constraint trigger limit_unit_ring after insert on dibs.limit_unit
deferrable initially deferred for each row when (new.ring) execute function dibs._ring_unit();

-- How far a rate is ahead of the clock: one row for each, replaced by each claim that spends from it.
create sequence dibs.limit_rate_n_seq;
create table dibs.limit_rate (
  n bigint not null default nextval('dibs.limit_rate_n_seq'),
  tat timestamptz not null,
  limit_id integer not null
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);
alter sequence dibs.limit_rate_n_seq owned by dibs.limit_rate.n;
comment on table dibs.limit_rate is 'How far each rate is spent. Insert, delete.';
create index limit_rate_limit_idx on dibs.limit_rate (limit_id, n desc);

create type dibs.queue_reservation as (
  limit_id integer,
  allowed integer,
  tat timestamptz,
  has_units boolean
);
comment on type dibs.queue_reservation is
'What a claim took of a queue''s own limit: which, how many jobs it allows, how far its rate is spent, and whether each job holds
a unit of it.';

create type dibs.unit_hint as (
  n bigint,
  since bigint,
  until bigint
);
comment on type dibs.unit_hint is
'What a connection remembers of a limit''s free units: the number of the first (n), and from when until when, in microseconds, to
believe it.';

create type dibs.first_blocked as (
  rank smallint,
  due_at timestamptz,
  id uuid,
  n bigint,
  since bigint,
  until bigint
);
comment on type dibs.first_blocked is
'What a connection remembers of who waits for a limit: the first (rank is its priority below zero), up to which number (n) it has
seen all who wait, and from when until when, in microseconds, to believe it.';
