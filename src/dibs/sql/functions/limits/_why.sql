-- Sentences and phrases on limits, for why().

create or replace function dibs._describe_holders(of_limit integer) returns text
language sql stable
return (
  select case when count(*) = 0 then 'nobody holds it'
    else format('%s hold%s it: %s%s', count(*), case count(*) when 1 then 's' else '' end,
      string_agg(coalesce(dibs._visible_job(l.id)::text, 'a job of another queue')
        || coalesce(' (worker ' || l.worker || ')', ''), ', ' order by l.claimed_at) filter (where l.place <= 3),
      case when count(*) > 3 then ', …' else '' end) end
  from (
    select l.id, l.worker, l.claimed_at, row_number() over (order by l.claimed_at) as place
    from dibs.lease as l where of_limit = any (l.limit_ids)
  ) as l);

comment on function dibs._describe_holders is
'Return a phrase on the jobs that hold units of a limit: how many, and the first three.';

create or replace function dibs._why_blocked(of_limit integer, waits_for text, job_id uuid) returns text
language sql stable
return (
  select case when r.rate is not null and (r.concurrency is null or dibs._free_tokens(r, dibs.now()) = 0)
      then format('It is due, but of %s no more than %s start in a second.', waits_for, r.rate)
    else format('It is due, but waits for %s of the limit of %s, which is %s; %s.',
      coalesce((select n.units from dibs._job_needs(job_id) as n where n.need_id = of_limit), 1), waits_for,
      coalesce(r.concurrency::text, 'gone'), dibs._describe_holders(of_limit)) end
  from (values (of_limit)) as wanted (id) left join dibs.limit_rule as r on r.id = wanted.id);

comment on function dibs._why_blocked is
'Return a sentence on the limit for which a blocked job waits: its rate, if that has no tokens, or its concurrency and
the jobs that hold its units. `waits_for` is the limit''s name.';

create or replace function dibs._queue_limit_note(queue_name text, at timestamptz) returns text
language sql stable
return (
  select case
    when r.concurrency is not null
      and (select coalesce(sum(u.units), 0) from dibs.limit_unit as u where u.limit_id = r.id) <= r.debt
      then format('queue %L may run %s at once; %s', queue_name, r.concurrency, dibs._describe_holders(r.id))
    when dibs._free_tokens(r, at) = 0 then format('queue %L starts no more than %s a second', queue_name, r.rate)
  end
  from dibs.limit_rule as r where r.is_set and r.of_queue = queue_name);

comment on function dibs._queue_limit_note is 'Return a phrase if a queue''s own limit lets no job start, else null.';

create or replace function dibs._describe_group_holders(of_group uuid) returns text
language sql stable
return (
  select string_agg(h.id || coalesce(' (worker ' || h.worker || ')', ''), ', ' order by h.place)
    filter (where h.place <= 3) || case when count(*) > 3 then ', …' else '' end
  from (
    select r.id, r.worker, row_number() over (order by r.claimed_at, r.id) as place
    from (
      select l.id, l.worker, l.claimed_at from dibs.lease as l
      where l.group_key = of_group and l.group_hold > 'none'
      union all
      select b.id, null, null from dibs.blocked as b
      where b.group_key = of_group and b.group_hold > 'none') as r
  ) as h);

comment on function dibs._describe_group_holders is
'Return a phrase on the jobs that count in a group: the first three that run, or wait in blocked in its strict order.';

create or replace function dibs._group_limit_note(
  job_id uuid, queue_id integer, group_name text, of_group uuid, at timestamptz)
returns text
language sql stable
return (
  select case
    when p.concurrency <= h.holders
      then format('its group %L may run %s at once; held by %s', group_name, p.concurrency,
        dibs._describe_group_holders(of_group))
    when g.next_id <> job_id
      then format('its group %L is in strict order and waits for job %s', group_name, g.next_id)
    when p.rate is not null and dibs._tokens(p.rate, p.burst, g.tat, at) = 0
      then format('its group %L starts no more than %s a second', group_name, p.rate)
  end
  from dibs._find_group_policy(queue_id, of_group) as p
  left join lateral (
    select g.next_id, g.tat from dibs.group_gate as g
    where g.group_key = of_group order by g.n desc limit 1) as g on true
  cross join (
    select (
      select count(*) from dibs.lease as l
      where l.group_key = of_group and l.group_hold > 'none'
    ) + (
      select count(*) from dibs.blocked as b
      where b.group_key = of_group and b.group_hold > 'none') as holders
  ) as h);

comment on function dibs._group_limit_note is
'Return a phrase if the concurrency, the strict order or the rate of its group keeps a job from starting, else null. In
strict order the gate of the group names the job that has to run next (next_id).';
