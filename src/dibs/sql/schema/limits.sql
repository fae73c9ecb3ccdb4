-- Limits: how many jobs run at once (units) and how many start per second (a rate).
--
-- scope    | a job takes from the limit            | the limit may concern
-- ---------+---------------------------------------+-----------------------------------------------------------------
-- queue    | before its ticket is looked at: a     | the queue of that name (queue.has_limit)
--          | claim reserves for the whole queue    |
-- kind     | with its ticket: 1 unit, 1 token      | jobs of every queue (of_any_queue)
-- resource | with its ticket: the units it names   | queues with jobs that name resources (queue.has_job_limits, set
--          | in job.resources, 1 token             | by enqueue)
--
-- functions/limits/_scopes.sql has the rest of what depends on the scope.

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
  of_queue text generated always as (case when scope = 'queue' then name end) stored,
  of_any_queue boolean generated always as (scope = 'kind') stored,
  constraint limit_rule_scope_known check (scope in ('queue', 'kind', 'resource')),
  constraint limit_rule_name_shape check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
  constraint limit_rule_concurrency_range check (concurrency between 0 and 1000000),
  constraint limit_rule_rate_range check (rate between 0.000001 and 1000000),
  constraint limit_rule_burst_range check (burst between 1 and least(1000000, rate * 10000000000)),
  constraint limit_rule_something check (is_set = (num_nonnulls(concurrency, rate) > 0))
);
comment on table dibs.limit_rule is 'Limits that were set, one row each.';
comment on column dibs.limit_rule.debt is
'Units to destroy because the limit was lowered. free + held = concurrency + debt; claims that take units pay it.';
comment on column dibs.limit_rule.declared is
'The concurrency that code declared last. An operator''s number stays until code declares another.';
comment on column dibs.limit_rule.declared_rate is 'The rate that code declared last.';
comment on column dibs.limit_rule.is_set is
'False once the limit was dropped, or was replaced because it got or lost a concurrency. Claims take nothing from it
any more. The row stays until no ticket waits for it.';
comment on column dibs.limit_rule.forget_after is
'Of a limit that is not set: no claim knows it once all transactions below this id have ended. Null until repair_limits
has seen the row.';
comment on column dibs.limit_rule.of_queue is
'The queue whose own limit this is; null for a limit that jobs take from one by one.';
comment on column dibs.limit_rule.of_any_queue is
'True if jobs of any queue may need the limit, whatever their options.';
create unique index limit_rule_name_key on dibs.limit_rule (scope, name) where is_set;
create index limit_rule_queue_idx on dibs.limit_rule (of_queue) where is_set;

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
comment on table dibs.limit_unit is
'Free units of limits. A claim deletes rows to take units; the end of a run inserts a row to return them. A row may
stand for several units.';
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

comment on function dibs._ring_unit is
'At the end of a transaction that returned units, ring for the jobs that wait for them.';

create constraint trigger limit_unit_ring after insert on dibs.limit_unit
deferrable initially deferred for each row when (new.ring) execute function dibs._ring_unit();

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
comment on table dibs.limit_rate is
'How far each rate is spent. Only the row with the highest n of a limit counts; a claim that takes tokens replaces
it.';
comment on column dibs.limit_rate.tat is
'The theoretical arrival time of a GCRA: when the rate will have made up for every token taken so far.';
create index limit_rate_limit_idx on dibs.limit_rate (limit_id, n desc);

create type dibs.job_needs as (
  need_ids integer[],
  units integer[]
);
comment on type dibs.job_needs is
'What one job must take with its ticket: units[i] of need_ids[i], ascending. A need_id is a limit''s id for its units, and
the id times -1 for a token of its rate.';

create type dibs.held_units as (
  limit_ids integer[],
  limit_units integer[]
);
comment on type dibs.held_units is
'Units of limits that one job holds while it runs: of limit_ids[i], limit_units[i] units.';

create type dibs.queue_reservation as (
  limit_id integer,
  allowed integer,
  units dibs.held_units
);
comment on type dibs.queue_reservation is
'What a claim reserved of a queue''s own limit: `allowed` is how many jobs may start, and `units` is the one unit that
each of them then holds (null without a concurrency).';

create type dibs.unit_hint as (
  n bigint,
  since bigint,
  until bigint
);
comment on type dibs.unit_hint is
'Where a connection starts to look for free units of a limit: no committed row has a smaller number than n. To be
believed from since until until, in microseconds.';

create type dibs.first_blocked as (
  rank smallint,
  due_at timestamptz,
  id uuid,
  n bigint,
  since bigint,
  until bigint
);
comment on type dibs.first_blocked is
'The first ticket that waits for a limit, in the order of claims: by rank (the priority times -1), due time and id. A
connection remembers it, has seen every ticket up to blocked.n = n, and believes it from since until until
(microseconds).';
