-- Which shard a job belongs to.

create or replace function dibs._shard_for(key text, shards integer) returns integer
language sql immutable parallel safe
return ((hashtextextended(key, 20005) % shards + shards) % shards)::integer;

comment on function dibs._shard_for is 'The shard that a key belongs to.';

create or replace function dibs._route_jobs(jobs jsonb) returns jsonb
language sql volatile
return (
  select jsonb_agg(
    case when q.shards > 1 then
      jsonb_set(e.job, '{queue}', to_jsonb(q.name || coalesce('#' || nullif(dibs._shard_for(coalesce(
        e.job ->> 'shard_key', e.job ->> 'group', e.job ->> 'dedup_key', e.job ->> 'id', random()::text),
        q.shards), 0), '')))
      else e.job end
    order by e.ord)
  from jsonb_array_elements(jobs) with ordinality as e (job, ord)
  left join dibs.queue as q on q.name = e.job ->> 'queue');

comment on function dibs._route_jobs is
'A batch whose jobs for sharded queues are for their shards: by shard_key, or group, or dedup_key, or id, or at
random.';
