-- Limits: how many jobs run at once (units) and how many start per second (a rate).
--
-- scope    | a job takes                    | when                             | queues it applies to
-- ---------+--------------------------------+----------------------------------+--------------------------------------
-- queue    | 1 unit, 1 token                | a claim reserves for the queue   | the queue of that name
--          |                                | before it looks at tickets       | (queue.has_limit)
-- kind     | 1 unit, 1 token                | after a claim took the ticket    | all (limit_rule.of_any_queue)
-- resource | the units it names in          | after a claim took the ticket    | queues that have had a job with
--          | job.resources, 1 token         |                                  | resources (queue.has_job_limits)
--
-- Everything else that depends on the scope is in functions/limits/_scopes.sql.

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
comment on table dibs.limit_rule is
'Limits: the concurrency and the rate that each was given. A limit without a concurrency has no units.';
comment on column dibs.limit_rule.concurrency is
'The number of units: how many jobs run at once, or how many units of a resource they hold together. Null: no such
limit.';
comment on column dibs.limit_rule.rate is 'The number of jobs that start per second. Null: no such limit.';
comment on column dibs.limit_rule.burst is
'The number of jobs that may start at once after a pause. Null: the jobs of one second.';
comment on column dibs.limit_rule.debt is
'Units that have to be destroyed because the limit was lowered: free + held = concurrency + debt. Claims that take units
pay it.';
comment on column dibs.limit_rule.declared is
'The concurrency that code declared last. If an operator changes the limit, that number stays until code declares a
different one.';
comment on column dibs.limit_rule.declared_rate is 'The rate that code declared last.';
comment on column dibs.limit_rule.is_set is
'False if the limit was dropped, or was replaced because it got or lost a concurrency. Claims take nothing from it any
more. The row stays until no ticket waits for it and no claim in flight knows it (forget_after).';
comment on column dibs.limit_rule.forget_after is
'The transaction id after which a limit that is not set can be deleted: when all transactions below it have ended, no
claim in flight knows the limit. Null until repair_limits has seen that the limit is not set.';
comment on column dibs.limit_rule.of_queue is
'The queue whose own limit this is; null for a limit of a kind or a resource.';
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
'Free units of limits. A claim deletes rows to take units; the end of a run inserts a row to return them. A row has at
least one unit.';
comment on column dibs.limit_unit.n is
'Grows with each row. Claims take the highest first, so they meet the dead rows of units taken earlier last.';
comment on column dibs.limit_unit.freed_at is
'The time when the units became free. A claim takes only units that were free at its own time.';
comment on column dibs.limit_unit.ring is
'True if the commit that returns the units has to wake workers for the jobs that wait for them.';
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
'Ring for the jobs that wait for units, at the commit of a transaction that returned some.';

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
'The state of each rate. Only the row with the highest n of a limit counts. A claim that takes tokens deletes it and
inserts the next one.';
comment on column dibs.limit_rate.tat is
'The theoretical arrival time of a GCRA: when the rate will have made up for every token taken so far. See
functions/values/_rates.sql.';
create index limit_rate_limit_idx on dibs.limit_rate (limit_id, n desc);

create type dibs.job_needs as (
  need_ids integer[],
  units integer[]
);
comment on type dibs.job_needs is
'The needs of one job, which a claim takes with its ticket: units[i] of need_ids[i], ordered by need_id. A need_id is
the id of a limit for units of it, and the id times -1 for tokens of its rate.';

create type dibs.held_units as (
  limit_ids integer[],
  limit_units integer[]
);
comment on type dibs.held_units is
'Units of limits that one job holds while it runs: limit_units[i] units of the limit limit_ids[i].';

create type dibs.queue_reservation as (
  limit_id integer,
  allowed integer,
  units dibs.held_units,
  has_rate boolean
);
comment on type dibs.queue_reservation is
'The reservation of a claim in a queue''s own limit. `allowed` jobs may start: the claim took a token for each (if the
limit has_rate) and a unit for each. `units` is the one unit that each job then holds; null without a concurrency.';

create type dibs.unit_hint as (
  n bigint,
  since bigint,
  until bigint
);
comment on type dibs.unit_hint is
'The lowest number at which a connection looks for free units of a limit: it found none below n. It believes the hint
between the times `since` and `until` (microseconds).';

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
connection remembers it as a hint. It has seen all tickets up to the number n (blocked.n), and believes the hint between
the times `since` and `until` (microseconds).';
