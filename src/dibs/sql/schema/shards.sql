-- Queues whose jobs are handed out only to the worker that holds them, whole or in shards. Shard 0 is the queue itself;
-- the others are separate queues, which have its policy and no name to enqueue under.

create table dibs.shard (
  queue_id integer not null constraint shard_pkey primary key,
  parent integer not null,
  worker bigint,
  held_until timestamptz,
  taken_at timestamptz,
  is_drained boolean not null default true,
  lost_holder bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table dibs.shard is 'Which worker pulls from an exclusive queue or a shard, and until when.';
comment on column dibs.shard.queue_id is 'The queue or shard.';
comment on column dibs.shard.parent is 'The queue that the shard belongs to; of an exclusive queue, the queue itself.';
comment on column dibs.shard.worker is 'The number of its holder; null if it was released, or was never held.';
comment on column dibs.shard.held_until is 'When the hold ends if it is not renewed.';
comment on column dibs.shard.taken_at is 'When the holder took it.';
comment on column dibs.shard.is_drained is 'True if no run of a former holder is left, so that the holder may claim.';
comment on column dibs.shard.lost_holder is
'The former holder, if it did not renew and its runs may not have ended yet; null otherwise.';

create table dibs.puller (
  parent integer not null,
  worker bigint not null,
  seen_until timestamptz not null,
  constraint puller_pkey primary key (parent, worker)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table dibs.puller is 'Which workers want to pull from a queue that is held in shards.';
