-- What enqueue is made of. Nobody but the owner calls these.

create or replace function dibs.expiry(due_at timestamptz, ttl interval, deadline timestamptz)
returns timestamptz
language sql stable parallel safe
return least(case when ttl < interval '10 years' then due_at + ttl else 'infinity' end,
             coalesce(deadline, 'infinity'));

comment on function dibs.expiry is 'When a job due at `due_at` expires: a TTL of 10 years or none is never.';

create or replace function dibs.fingerprint_of(queue_id integer, dedup_key text) returns bytea
language sql immutable strict parallel safe
return sha256(convert_to(queue_id || ':' || dedup_key, 'UTF8'));

comment on function dibs.fingerprint_of is 'The hash that stands for a dedup key of a queue.';

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

create or replace function dibs.ensure_queues(names text[]) returns void
language plpgsql volatile
as $$
declare
  v_missing text[] := array(
    select n from unnest(names) as n
    where not exists (select from dibs.queue as q where q.name = n) order by n);
begin
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

comment on function dibs.ensure_queues is 'Make the queues that do not exist yet, or refuse them in strict mode.';

create or replace function dibs.ask(batch jsonb, out jobs bigint, out given bigint, out keys bigint, out groups bigint, out resources bigint,
  out queues text[])
language plpgsql immutable
as $$
declare
  v_names constant text[] := '{queue,kind,payload,body,content_type,headers,id,priority,delay,due_at,ttl,deadline,lease,lease_growth,lease_cap,max_attempts,backoff,history,dedup_key,group,cost,resources}'::text[];
  v_unknown text;
begin
  if coalesce(jsonb_typeof(batch), 'null') <> 'array' then
    raise exception using errcode = 'DI010',
      message = format('enqueue_many takes a JSON array of jobs, not %s',
                       coalesce('a JSON ' || jsonb_typeof(batch), 'null')),
      hint = 'pass [{"queue": "mail", "kind": "welcome", "payload": {}}, …]';
  end if;
  select count(*), count(e ->> 'id'), count(e ->> 'dedup_key'), count(e ->> 'group'), count(e ->> 'resources'), array_agg(distinct coalesce(e ->> 'queue', '')),
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

create or replace function dibs.take_fingerprints(jobs jsonb, known uuid[], at timestamptz,
  out ids uuid[], out same uuid[])
language plpgsql volatile
as $$
declare
  v_hashes bytea[];
  v_mine bytea[] := '{}'::bytea[];
  v_freed boolean;
begin
  select array_agg(coalesce((e.job ->> 'id')::uuid, dibs.id_at(dibs.tick(at) + e.ord)) order by e.ord),
    array_agg(case when known[e.ord] is null then dibs.fingerprint_of(q.id, e.job ->> 'dedup_key') end
              order by e.ord)
  into ids, v_hashes
  from jsonb_array_elements(jobs) with ordinality as e (job, ord)
  join dibs.queue as q on q.name = e.job ->> 'queue';
  -- A holder may end between our failed insert and our look at it: then its key is free again, so try again.
  loop
    with new as (
      insert into dibs.fingerprint (hash, id)
      select distinct on (k.hash) k.hash, k.id
      from unnest(v_hashes, ids) with ordinality as k (hash, id, ord)
      where k.hash is not null and k.hash <> all (v_mine) order by k.hash, k.ord
      on conflict do nothing
      returning hash)
    select v_mine || array_agg(n.hash) into v_mine from new as n;

    select array_agg(coalesce(nullif(k.holder, k.id), known[k.ord]) order by k.ord),
      bool_or(k.hash is not null and k.holder is null)
    into same, v_freed
    from (
      select k.hash, k.id, k.ord,
        case when k.hash = any (v_mine) then first_value(k.id) over (partition by k.hash order by k.ord)
          else (select f.id from dibs.fingerprint as f where f.hash = k.hash limit 1) end as holder
      from unnest(v_hashes, ids) with ordinality as k (hash, id, ord)
    ) as k;
    exit when not v_freed;
  end loop;
end
$$;

comment on function dibs.take_fingerprints is
'Take the dedup keys of a batch, sorted; for a key that is taken, `same` names the job that holds it.';

create or replace function dibs.free_fingerprints(hashes bytea[], ids uuid[]) returns void
language sql volatile
begin atomic
  delete from dibs.fingerprint as f
  using (select k.hash, k.id from unnest(hashes, ids) as k (hash, id) where k.hash is not null order by k.hash) as k
  where f.hash = k.hash and f.id = k.id;
end;

comment on function dibs.free_fingerprints is 'Give back the dedup keys that these jobs hold.';
