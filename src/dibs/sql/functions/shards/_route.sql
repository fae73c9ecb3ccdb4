-- Choose the shard of a job.

create or replace function dibs._shard_for(key text, shards integer) returns integer
language sql immutable parallel safe
return ((hashtextextended(key, 20005) % shards + shards) % shards)::integer;

comment on function dibs._shard_for is 'The shard that a key belongs to.';

create or replace function dibs._route_jobs(jobs jsonb) returns jsonb
language sql volatile
return (
  select jsonb_agg(
    case when k.shard > 0 then jsonb_set(e.job, '{queue}', to_jsonb(q.name || '#' || k.shard)) else e.job end
    order by e.ord)
  from jsonb_array_elements(jobs) with ordinality as e (job, ord)
  left join dibs.queue as q on q.name = e.job ->> 'queue' and q.shards > 1
  cross join lateral (
    select dibs._shard_for(coalesce(e.job ->> 'shard_key', e.job ->> 'group', e.job ->> 'dedup_key', e.job ->> 'id',
      random()::text), q.shards) as shard) as k);

comment on function dibs._route_jobs is
'Replace the queue of each job in a batch by the name of its shard, if the queue has more than one: by its shard_key, or
group, or dedup_key, or id, or at random.';
