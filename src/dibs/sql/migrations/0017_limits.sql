-- Limits are tickets, not counts: a limit of k has k units, which are free in slot or held by a lease.

create table dibs.bound (
  id integer generated always as identity constraint bound_pkey primary key,
  scope text not null,
  name text not null,
  slots integer,
  rate double precision,
  burst integer,
  debt integer not null default 0,
  constraint bound_name_key unique (scope, name),
  constraint bound_scope_known check (scope in ('queue', 'kind', 'resource')),
  constraint bound_name_shape check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
  constraint bound_slots_range check (slots between 0 and 1000000),
  constraint bound_rate_range check (rate > 0 and rate <= 1000000),
  constraint bound_burst_range check (burst between 1 and 1000000),
  constraint bound_something check (slots is not null or rate is not null)
);

comment on table dibs.bound is 'Limits that were set, of queues, kinds and named resources. debt: units that are to be used up, after it was lowered.';

create sequence dibs.slot_n_seq;
create table dibs.slot (
  n bigint not null default nextval('dibs.slot_n_seq'),
  freed_at timestamptz not null,
  limit_id integer not null,
  units integer not null,
  ring boolean not null default false
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);

alter sequence dibs.slot_n_seq owned by dibs.slot.n;
comment on table dibs.slot is 'Free units of limits. Insert, delete.';
create function dibs.ring_slot() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform dibs.ring_for(new.limit_id);
  return null;
end
$$;

comment on function dibs.ring_slot is 'Ring for whoever waits for a limit that has a free unit again.';

create constraint trigger slot_ring after insert on dibs.slot
deferrable initially deferred for each row when (new.ring) execute function dibs.ring_slot();

create index slot_limit_idx on dibs.slot (limit_id, n desc);

-- How far a rate is ahead of the clock: one row for each, replaced by whoever spends of it.
create sequence dibs.pace_n_seq;
create table dibs.pace (
  n bigint not null default nextval('dibs.pace_n_seq'),
  tat timestamptz not null,
  limit_id integer not null
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on
);

alter sequence dibs.pace_n_seq owned by dibs.pace.n;
comment on table dibs.pace is 'How far each rate is spent. Insert, delete.';
create index pace_limit_idx on dibs.pace (limit_id, n desc);

-- What a claim took of a queue's own limit: which, how many jobs it allows, and how far its rate is spent.
create type dibs.gate as (
  place integer,
  limit_id integer,
  has_slots boolean,
  allowed integer,
  tat timestamptz
);

-- What a lease that ended held of its group's turns and of limits.
create type dibs.holding as (
  lane uuid,
  turn smallint,
  queue_id integer,
  slots text
);
