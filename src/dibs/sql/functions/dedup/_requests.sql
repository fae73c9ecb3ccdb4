-- The dedup options of a batch, and the keys that its jobs ask for.

create or replace function dibs._dedup_options(jobs jsonb, bodies bytea[])
returns table (ord integer, queue text, hash bytea, scope text, dedup_for interval, on_duplicate text)
language sql stable
begin atomic
  select a.ordinality::integer, a.queue,
    case
      when a.dedup_key is not null then dibs._fingerprint_of(coalesce(q.shard_of, q.id), a.dedup_key)
      when a.dedup then dibs._fingerprint_of_arguments(coalesce(q.shard_of, q.id), coalesce(a.kind, ''), a.payload,
        coalesce(bodies[a.ordinality], decode(a.body, 'base64')))
    end,
    nullif(coalesce(a.dedup_scope, case when a.dedup_for is not null then 'window' end), 'unfinished'),
    a.dedup_for, coalesce(a.on_duplicate, 'keep')
  from jsonb_populate_recordset(null::dibs.job_request, jobs) with ordinality as a
  join dibs.queue as q on q.name = a.queue;
end;

comment on function dibs._dedup_options is
'Return the dedup options of each job of a batch, unchecked, with the hash of its key (null without one). `scope` is as
in the table: null stands for `unfinished`.';

create or replace function dibs._check_dedup(
  ord integer, hash bytea, scope text, dedup_for interval, on_duplicate text) returns boolean
language plpgsql immutable
as $$
declare
  v_wrong text;
  v_hint text;
begin
  -- The scope `unfinished` is null here.
  if scope not in ('waiting', 'window') then
    perform dibs._refuse_unknown('DI010', format('job %s has the dedup_scope %L', ord, scope), scope,
      '{waiting,unfinished,window}',
      'a key is held while its job is waiting, or unfinished (the default), or for a window of time');
  elsif on_duplicate not in ('keep', 'refuse', 'replace') then
    perform dibs._refuse_unknown('DI010', format('job %s has the on_duplicate %L', ord, on_duplicate), on_duplicate,
      '{keep,refuse,replace}', 'it is keep (the default), refuse or replace');
  elsif dedup_for <= interval '0' or dedup_for > interval '10 years' then
    v_wrong := format('a dedup_for of %s', dedup_for);
    v_hint := 'it is above 0 and up to 10 years';
  elsif scope = 'window' and dedup_for is null then
    v_wrong := 'the dedup_scope window, and no dedup_for';
    v_hint := 'say for how long, such as "dedup_for": 60';
  elsif hash is null and (scope is not null or dedup_for is not null or on_duplicate <> 'keep') then
    v_wrong := 'a dedup option, and no key it could be about';
    v_hint := 'give it a dedup_key, or "dedup": true to make one from its kind and payload';
  else
    return true;
  end if;
  raise exception using errcode = 'DI010', message = format('job %s has %s', ord, v_wrong), hint = v_hint;
end
$$;

comment on function dibs._check_dedup is
'Return true, or raise DI010 if a dedup option of a job is unknown, out of range or contradicts another.';

create or replace function dibs._requested_keys(jobs jsonb, bodies bytea[])
returns table (hash bytea, queue text, ords integer[], scope text, dedup_for interval, replaces boolean,
  refusing integer[])
language sql stable
begin atomic
  -- `rank` puts the job that shall take a key first: the last that replaces, otherwise the first.
  select k.hash, min(k.queue), array_agg(k.ord order by k.rank), (array_agg(k.scope order by k.rank))[1],
    (array_agg(k.dedup_for order by k.rank))[1], bool_or(k.on_duplicate = 'replace'),
    array_agg(k.ord order by k.rank) filter (where k.on_duplicate = 'refuse')
  from (
    select o.*, case when o.on_duplicate = 'replace' then -o.ord else o.ord end as rank
    from dibs._dedup_options(jobs, bodies) as o
    where case when num_nonnulls(o.scope, o.dedup_for) > 0 or o.on_duplicate <> 'keep'
      then dibs._check_dedup(o.ord, o.hash, o.scope, o.dedup_for, o.on_duplicate) else o.hash is not null end
  ) as k
  group by k.hash order by k.hash;
end;

comment on function dibs._requested_keys is
'Return each dedup key that jobs of a batch ask for, sorted by hash: the positions of these jobs (`ords`) and, of them,
those that refuse to be duplicates (`refusing`). The job at `ords[1]` shall take the key, by its `scope` and for its
`dedup_for`. Raise DI010 for bad options.';
