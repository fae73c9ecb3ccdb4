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
returns table (queue_id integer, group_key uuid, noisy boolean, running bigint, id uuid, sampled double precision)
language plpgsql stable
as $$
begin
  return query
  select f.queue_id, f.group_key, bool_or(f.noisy), coalesce(max(f.running), 0),
    (array_agg(f.id) filter (where f.id is not null))[1], sum(f.sampled)
  from (
    -- Those with the most running jobs, by at most 20,000 leases.
    (select l.queue_id, l.group_key, false as noisy, count(*) as running, (array_agg(l.id))[1] as id,
       null::double precision as sampled
     from (select l.queue_id, l.group_key, l.id from dibs.lease as l limit 2 * dibs._count_bound()) as l
     where l.queue_id = any (ids) and l.group_key is not null
     group by 1, 2 order by 4 desc, 2 limit _find_shown_groups.max)
    union all
    -- Those that have waited the longest.
    (select distinct n.queue_id, n.group_key, false, 0, null::uuid, null::double precision
     from dibs._longest_waiting_groups(ids, at, _find_shown_groups.max) as n)
    union all
    -- The noisy ones.
    (select distinct n.queue_id, n.group_key, true, 0, null::uuid, null::double precision
     from dibs._longest_waiting_groups(array(select -k from unnest(ids) as k), at, _find_shown_groups.max) as n)
    union all
    -- Those with the most waiting jobs, by a sample.
    (select s.queue_id, s.group_key, false, 0, null::uuid, sum(s.jobs) from dibs._sample_tickets('ready', at) as s
     where s.queue_id = any (ids) and s.group_key is not null
     group by 1, 2 order by sum(s.jobs) desc, 2 limit _find_shown_groups.max)
  ) as f
  group by 1, 2;
end
$$;

comment on function dibs._find_shown_groups is
'Return up to `max` groups of each of four sorts, and some more. `running` jobs are counted, `sampled` is an estimate of
the waiting ones (null if unknown), and `id` is one of the running jobs (null if there is none).';

create or replace function dibs._waiting_in_group(
  queue_id integer, group_key uuid, at timestamptz, max integer, out jobs bigint, out oldest timestamptz, out id uuid)
language plpgsql stable
as $$
#variable_conflict use_column
begin
  select count(*) into _waiting_in_group.jobs from (
    select from dibs.ready as r
    where r.queue_id = _waiting_in_group.queue_id and r.group_key = _waiting_in_group.group_key
    limit _waiting_in_group.max + 1) as r;
  select r.due_at, r.id into _waiting_in_group.oldest, _waiting_in_group.id
  from dibs.queue as q cross join lateral unnest(dibs._priorities(q)) as p (priority)
  cross join lateral (
    select r.due_at, r.id from dibs.ready as r
    where r.queue_id = q.id and r.group_key = _waiting_in_group.group_key and r.priority = p.priority
    order by r.due_at, r.id limit 1) as r
  where q.id = _waiting_in_group.queue_id order by r.due_at limit 1;
end
$$;

comment on function dibs._waiting_in_group is
'Count the waiting jobs of a group, up to one more than `max`, and return the one that is due first; nulls if none
waits.';

create or replace function dibs.groups(queue text, max integer default 20)
returns table ("group" text, running bigint, waiting bigint, oldest interval, noisy boolean, weight integer,
  concurrency integer, rate double precision, is_estimate boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c_counted constant integer := 200;
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
  select j.group_name, l.running,
    case when w.jobs > c_counted then greatest(w.jobs, dibs._round_to_three_digits(l.sampled)) else w.jobs end,
    case when w.jobs > 0 then greatest(v_now - w.oldest, interval '0') end, l.noisy, coalesce(p.weight, 1),
    p.concurrency, p.rate, w.jobs > c_counted and dibs._sampling_step('ready') > 1
  from dibs._find_shown_groups(v_ids, v_now, groups.max) as l
  cross join lateral dibs._waiting_in_group(l.queue_id, l.group_key, v_now, c_counted) as w
  cross join lateral (select j.group_name from dibs.job as j where j.id = coalesce(w.id, l.id) offset 0) as j
  left join lateral dibs._find_group_policy(l.queue_id, l.group_key) as p on true
  where l.running > 0 or w.jobs > 0
  order by l.running desc, 3 desc, 1;
end
$$;

comment on function dibs.groups is
'Return the groups of a queue with the most running or waiting jobs, those that have waited the longest, and the noisy
ones, which are served last: up to `max` of each sort and some more, however many groups there are. Up to 200 waiting
jobs are counted; beyond that the number is an estimate.';
