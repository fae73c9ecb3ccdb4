-- What enqueue is made of. Nobody but the owner calls these.

create or replace function dibs.expiry(due_at timestamptz, ttl interval, deadline timestamptz)
returns timestamptz
language sql stable parallel safe
return least(case when ttl < interval '10 years' then due_at + ttl else 'infinity' end,
             coalesce(deadline, 'infinity'));

comment on function dibs.expiry is 'When a job due at `due_at` expires: a TTL of 10 years or none is never.';

create or replace function dibs.nearest(word text, words text[]) returns text
language sql immutable parallel safe
begin atomic
  -- Letters shared by place, from the front and from the back: enough to catch a slip of the hand.
  select w.w
  from (
    select w,
      array(select regexp_split_to_table(lower(w), '') order by 1)
        = array(select regexp_split_to_table(lower(word), '') order by 1) as anagram, (
      select count(*) from generate_series(1, least(length(w), length(word))) as i
      where lower(substr(w, i, 1)) = lower(substr(word, i, 1))
        or lower(substr(reverse(w), i, 1)) = lower(substr(reverse(word), i, 1))) as same
    from unnest(words) as w
  ) as w
  where w.same * 2 > greatest(length(w.w), length(word)) or w.anagram
  order by w.anagram desc, w.same - abs(length(w.w) - length(word)) desc, w.w
  limit 1;
end;

comment on function dibs.nearest is 'The word of `words` most like `word`, for "did you mean"; null if none is.';

create or replace function dibs.ensure_queues(names text[], out sharded boolean, out bounded boolean)
language plpgsql volatile
as $$
declare
  v_missing text[];
begin
  select array_agg(n.name) filter (where q.guarded is not false), coalesce(bool_or(q.sharded), false),
    coalesce(bool_or(q.bounded), false)
  into v_missing, sharded, bounded
  from unnest(names) as n (name)
  left join lateral (
    select q.guarded, q.shards > 1 as sharded, num_nonnulls(q.max_depth, q.max_age) > 0 as bounded from dibs.queue as q
    where q.name = n.name and q.shard_of is null offset 0) as q on true;
  if v_missing is null then
    return;
  end if;
  perform dibs.check_queues(v_missing);
  v_missing := array(
    select m from unnest(v_missing) as m
    where not exists (select from dibs.queue as q where q.name = m and q.shard_of is null) order by m);
  if v_missing = '{}' then
    return;
  end if;
  if v_missing[1] = '' then
    raise exception using errcode = 'DI010', message = 'a job needs a queue; it has none or an empty one',
      hint = 'give "queue" in each job, such as "queue": "mail"';
  end if;
  if (select strict from dibs.setting) then
    raise exception using errcode = 'DI011',
      message = format('there is no queue %L, and this database is strict about queues', v_missing[1]),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(v_missing[1], array(select q.name from dibs.queue as q))) || '? ', '')
        || format('make it with: select dibs.set_queue(%L)', v_missing[1]);
  end if;
  insert into dibs.queue (name, checked)
  select unnest(v_missing), exists (select from dibs.bound as b where b.scope = 'kind') on conflict do nothing;
end
$$;

comment on function dibs.ensure_queues is
'Make the queues that do not exist yet, or refuse them in strict mode. Says whether one of them has shards, and whether one
is bounded.';

create or replace function dibs.ask(batch jsonb, out jobs bigint, out given bigint, out keys bigint, out groups bigint, out resources bigint,
  out queues text[])
language plpgsql immutable
as $$
declare
  v_names constant text[] := '{queue,kind,payload,body,content_type,headers,id,priority,delay,due_at,ttl,deadline,lease,lease_growth,lease_cap,max_attempts,backoff,history,dedup_key,dedup,dedup_scope,dedup_for,on_duplicate,shard_key,group,cost,resources}'::text[];
  v_dedup constant text[] := '{dedup_key,dedup,dedup_scope,dedup_for,on_duplicate}'::text[];
  v_unknown text;
begin
  if coalesce(jsonb_typeof(batch), 'null') <> 'array' then
    raise exception using errcode = 'DI010',
      message = format('enqueue_many takes a JSON array of jobs, not %s',
                       coalesce('a JSON ' || jsonb_typeof(batch), 'null')),
      hint = 'pass [{"queue": "mail", "kind": "welcome", "payload": {}}, …]';
  end if;
  select count(*), count(e ->> 'id'), count(*) filter (where e ?| v_dedup), count(e ->> 'group'), count(e ->> 'resources'),
    array_agg(distinct coalesce(e ->> 'queue', '')),
    min((select k from jsonb_object_keys(e) as k where k <> all (v_names) limit 1))
      filter (where e - v_names <> '{}')
  into ask.jobs, ask.given, ask.keys, ask.groups, ask.resources, ask.queues, v_unknown
  from jsonb_array_elements(batch) as e;
  if v_unknown is not null then
    raise exception using errcode = 'DI010', message = format('a job has no option %L', v_unknown),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(v_unknown, v_names)) || '? ', '')
        || 'the options are ' || array_to_string(v_names, ', ');
  end if;
end
$$;

comment on function dibs.ask is 'What a batch of jobs asks for; refuses what is not a batch of jobs.';

create or replace function dibs.refuse_jobs(jobs jsonb, bodies bytea[], at timestamptz) returns void
language plpgsql stable
as $$
declare
  v_job record;
begin
  for v_job in
    select e.ord, e.job ->> 'queue' as queue, q.payload_limit, q.retention,
      coalesce(octet_length(bodies[e.ord]), length(e.job ->> 'body') * 3 / 4, pg_column_size(e.job -> 'payload')) as size,
      (e.job ->> 'delay')::interval as delay, (e.job ->> 'due_at')::timestamptz as due_at, (e.job ->> 'deadline')::timestamptz as deadline,
      (e.job ->> 'id')::uuid as id
    from jsonb_array_elements(jobs) with ordinality as e (job, ord)
    join dibs.queue as q on q.name = e.job ->> 'queue' order by e.ord
  loop
    if v_job.size > v_job.payload_limit then
      raise exception using errcode = 'DI012',
        message = format('the payload of job %s has %s bytes; queue %L takes at most %s',
                         v_job.ord, v_job.size, v_job.queue, v_job.payload_limit),
        hint = 'store it elsewhere and send its address, or raise the queue''s payload_limit';
    end if;
    if v_job.deadline >= timestamptz '9000-01-01' then
      raise exception using errcode = 'DI010',
        message = format('job %s has the deadline %s, which is too far away', v_job.ord, v_job.deadline),
        hint = 'give a deadline before the year 9000, or none';
    end if;
    if v_job.delay not between interval '0' and interval '10 years'
      or v_job.due_at > at + interval '10 years' or num_nonnulls(v_job.delay, v_job.due_at) = 2 then
      raise exception using errcode = 'DI010',
        message = format('job %s cannot be due then: delay %s, due_at %s', v_job.ord,
                         coalesce(v_job.delay::text, 'none'), coalesce(v_job.due_at::text, 'none')),
        hint = 'give either a delay from 0 to 10 years, or a due_at at most 10 years ahead';
    end if;
    if v_job.id >= dibs.id_floor(at + interval '1 hour') or v_job.id < dibs.id_floor(at - v_job.retention) then
      raise exception using errcode = 'DI013',
        message = format('job %s has the id %s, whose time %s is more than an hour ahead or older than retention',
                         v_job.ord, v_job.id, dibs.id_time(v_job.id)),
        hint = 'ids are UUIDv7 by the database''s clock: make them with dibs.make_id(), or give none';
    end if;
  end loop;
end
$$;

comment on function dibs.refuse_jobs is 'Say in a sentence why the first job of a batch that cannot be taken is refused.';

create or replace function dibs.known_ids(jobs jsonb) returns uuid[]
language sql stable
begin atomic
  select array_agg(
    case when j.id is not null or a.n > 1 then a.id end order by a.ord)
  from (
    select (e.job ->> 'id')::uuid as id, e.ord,
      row_number() over (partition by (e.job ->> 'id')::uuid order by e.ord) as n
    from jsonb_array_elements(jobs) with ordinality as e (job, ord)
  ) as a
  left join dibs.job as j on j.id = a.id;
end;

comment on function dibs.known_ids is
'For each job of a batch whose id is already there, or stands earlier in the batch: that id; else null.';
