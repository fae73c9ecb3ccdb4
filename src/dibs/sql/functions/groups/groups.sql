-- groups: a sample of a queue's groups to show, however many there are.

create or replace function dibs._longest_waiting_groups(ids integer[], at timestamptz, max integer)
returns table (queue_id integer, group_key uuid)
language plpgsql stable
as $$
begin
  -- Read more than `max` pointers: a group may have several.
  return query
  select abs(t.queue_id), t.group_key
  from unnest(ids) as k (id)
  cross join lateral (
    select t.queue_id, t.group_key from dibs.group_pointer as t
    where t.queue_id = k.id and t.look_at <= at order by t.queue_id, t.look_at, t.n limit 3 * max) as t;
end
$$;

comment on function dibs._longest_waiting_groups is
'Return the groups of up to three times `max` pointers in front of each rotation: those that have waited the longest.
`ids` are queues, negated for their noisy groups; the result has their ids without the sign.';

create or replace function dibs._find_shown_groups(ids integer[], at timestamptz, max integer)
returns table (
  queue_id integer, group_key uuid, is_noisy boolean, running bigint, running_id uuid, sampled double precision)
language plpgsql stable
as $$
begin
  return query
  with runs as materialized (
    -- By at most 20,000 leases, of all queues: no index leads to those of one queue.
    select l.queue_id, l.group_key, count(*) as jobs, (array_agg(l.id))[1] as id
    from (select l.queue_id, l.group_key, l.id from dibs.lease as l limit 2 * dibs._count_bound()) as l
    where l.queue_id = any (ids) and l.group_key is not null
    group by l.queue_id, l.group_key
  ), waits as materialized (
    select s.queue_id, s.group_key, sum(s.jobs) as jobs from dibs._sample_tickets('ready', at) as s
    where s.queue_id = any (ids) and s.group_key is not null
    group by s.queue_id, s.group_key
  ), shown as (
    -- The most running jobs, the most waiting ones, the longest wait, and the noisy groups.
    (select r.queue_id, r.group_key from runs as r
     order by r.jobs desc, r.group_key limit _find_shown_groups.max)
    union all
    (select w.queue_id, w.group_key from waits as w
     order by w.jobs desc, w.group_key limit _find_shown_groups.max)
    union all
    select n.queue_id, n.group_key from dibs._longest_waiting_groups(ids, at, _find_shown_groups.max) as n
    union all
    select n.queue_id, n.group_key
    from dibs._longest_waiting_groups(array(select -k from unnest(ids) as k), at, _find_shown_groups.max) as n
  )
  select s.queue_id, s.group_key,
    -- offset 0: look up each group by the index; the planner would hash all pointers.
    exists (
      select from dibs.group_pointer as t where t.group_key = s.group_key and t.queue_id = -s.queue_id offset 0),
    coalesce(min(r.jobs), 0), min(r.id::text)::uuid, min(w.jobs)
  from shown as s
  left join runs as r on r.group_key = s.group_key
  left join waits as w on w.group_key = s.group_key
  group by s.queue_id, s.group_key;
end
$$;

comment on function dibs._find_shown_groups is
'Return groups to show: `max` with the most running jobs, `max` with the most waiting ones, and the groups of 3 * `max`
pointers in front of each rotation. `running` is counted, `sampled` is an estimate of the waiting jobs (null if the
sample has none), and running_id is one of the running jobs (null if there is none).';

create or replace function dibs._waiting_in_group(
  queue_id integer, group_key uuid, max integer, out jobs bigint, out first_due_at timestamptz, out first_id uuid)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  select count(*) into _waiting_in_group.jobs from (
    select from dibs.ready as r
    where r.queue_id = _waiting_in_group.queue_id and r.group_key = _waiting_in_group.group_key
    limit _waiting_in_group.max + 1) as r;
  select r.due_at, r.id into _waiting_in_group.first_due_at, _waiting_in_group.first_id
  from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
  cross join lateral (
    select r.due_at, r.id from dibs.ready as r
    where r.queue_id = q.id and r.group_key = _waiting_in_group.group_key and r.priority = p.priority
    order by r.due_at, r.id limit 1) as r
  where q.id = _waiting_in_group.queue_id order by r.due_at limit 1;
end
$$;

comment on function dibs._waiting_in_group is
'Count the waiting jobs of a group, up to one more than `max`, and return the one that is due first, now or later (null
if none waits).';

create or replace function dibs.groups(queue text, max integer default 20)
returns table ("group" text, running bigint, waiting bigint, oldest interval, noisy boolean, weight integer,
  concurrency integer, rate double precision, is_estimate boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c_max_counted constant integer := 200;
  v_ids constant integer[] := dibs._queue_numbers(dibs._queue_number(queue));
  v_now constant timestamptz := dibs.now();
begin
  if coalesce(max, 0) not between 1 and 100 then
    raise exception using errcode = 'DI010', message = format('groups shows 1 to 100 of a sort, not %s', max);
  end if;
  if not (select bool_or(q.has_groups) from dibs.queue as q where q.id = any (v_ids)) then
    return;
  end if;
  return query
  select j.group_name, shown.running,
    case when waiting.jobs > c_max_counted then greatest(waiting.jobs, dibs._round_to_three_digits(shown.sampled))
      else waiting.jobs end,
    case when waiting.jobs > 0 then greatest(v_now - waiting.first_due_at, interval '0') end, shown.is_noisy,
    coalesce(policy.weight, 1), policy.concurrency, policy.rate, waiting.jobs > c_max_counted
  from dibs._find_shown_groups(v_ids, v_now, groups.max) as shown
  cross join lateral dibs._waiting_in_group(shown.queue_id, shown.group_key, c_max_counted) as waiting
  cross join lateral (
    select j.group_name from dibs.job as j where j.id = coalesce(waiting.first_id, shown.running_id) offset 0) as j
  left join lateral dibs._find_group_policy(shown.queue_id, shown.group_key) as policy on true
  where shown.running > 0 or waiting.jobs > 0
  order by shown.running desc, 3 desc, 1;
end
$$;

comment on function dibs.groups is
'Return the groups of a queue with the most running or waiting jobs, those that have waited the longest, and the noisy
ones, which are served last: `max` of each sort, or up to three times as many of the last two. Up to 200 waiting jobs
are counted; beyond that the number is an estimate. Running jobs are counted among 20,000 of all queues.';
