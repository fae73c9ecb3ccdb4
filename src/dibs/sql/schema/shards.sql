-- Queues whose jobs are handed out only to the worker that holds them, whole or in shards. Shard 0 is the queue itself;
-- the others are separate queues, which have its policy and no name to enqueue under.

-- `clear` is whether all runs of former holders have ended.
create table dibs.shard (
  queue_id integer not null constraint shard_pkey primary key,
  parent integer not null,
  worker bigint,
  held_until timestamptz,
  taken_at timestamptz,
  clear boolean not null default true
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table dibs.shard is 'Which worker pulls from an exclusive queue or a shard, and until when.';

create table dibs.puller (
  parent integer not null,
  worker bigint not null,
  seen_until timestamptz not null,
  constraint puller_pkey primary key (parent, worker)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table dibs.puller is 'Which workers want to pull from a queue that is held in shards.';
