-- What why says of limits.

create or replace function dibs._describe_holders(of_limit integer) returns text
language sql stable
return (
  select case when count(*) = 0 then 'nobody holds it' else format('%s hold%s it: %s%s', count(*), case count(*) when 1 then 's' else '' end,
    string_agg(coalesce(dibs._visible_job(l.id)::text, 'a job of another queue') || coalesce(' (worker ' || l.worker || ')', ''), ', '
      order by l.claimed_at) filter (where l.n <= 3),
    case when count(*) > 3 then ', …' else '' end) end
  from (
    select l.id, l.worker, l.claimed_at, row_number() over (order by l.claimed_at) as n from dibs.lease as l
    where of_limit = any (l.limit_ids)
  ) as l);

comment on function dibs._describe_holders is 'Who holds units of a limit, in words.';

create or replace function dibs._why_blocked(of_limit integer, waits_for text, job_id uuid) returns text
language sql stable
return (
  select case when b.rate is not null and (b.concurrency is null or dibs._free_tokens(b, dibs.now()) = 0)
      then format('It is due, but of %s no more than %s start in a second.', waits_for, b.rate)
    else format('It is due, but waits for %s of the limit of %s, which is %s; %s.',
      coalesce((select n.units from dibs._job_needs(job_id) as n where n.id = of_limit), 1), waits_for,
      coalesce(b.concurrency::text, 'gone'), dibs._describe_holders(of_limit)) end
  from (select 1) as one left join dibs.limit_rule as b on b.id = of_limit);

comment on function dibs._why_blocked is 'Explain what a blocked job waits for and who holds it.';

create or replace function dibs._why_limited(queue_id integer, queue_name text, group_name text, group_key uuid, at timestamptz) returns text
language sql stable
return coalesce((
  select case
    when b.concurrency is not null and not exists (select from dibs.limit_unit as s where s.limit_id = b.id and s.units > 0)
      then format('queue %L may run %s at once; %s', queue_name, b.concurrency, dibs._describe_holders(b.id))
    when b.rate is not null and dibs._tokens(b.rate, coalesce(b.burst, dibs._default_burst(b.rate)),
        (select p.tat from dibs.limit_rate as p where p.limit_id = b.id order by p.n desc limit 1), at) = 0
      then format('queue %L starts no more than %s a second', queue_name, b.rate)
  end
  from dibs.limit_rule as b where b.is_set and b.scope = 'queue' and b.name = queue_name), (
  select case
    when p.concurrency <= h.holders then format('its group %L may run %s at once; held by %s', group_name, p.concurrency, h.names)
    when g.next is not null then format('its group %L is in strict order and waits for job %s', group_name, g.next)
    when p.rate is not null and dibs._tokens(p.rate, coalesce(p.burst, dibs._default_burst(p.rate)), g.tat, at) = 0
      then format('its group %L starts no more than %s a second', group_name, p.rate)
  end
  from dibs._policy_of(queue_id, _why_limited.group_key) as p
  left join lateral (select g.next, g.tat from dibs.group_gate as g where g.group_key = _why_limited.group_key order by g.n desc limit 1) as g on true
  cross join lateral (
    select count(*) as holders, string_agg(h.id || coalesce(' (worker ' || h.worker || ')', ''), ', ') filter (where h.n <= 3) as names
    from (
      select h.*, row_number() over (order by h.claimed_at, h.id) as n
      from (
        select l.id, l.worker, l.claimed_at from dibs.lease as l where l.group_key = _why_limited.group_key and l.group_hold > 'none'
        union all
        select b.id, null, null from dibs.blocked as b where b.group_key = _why_limited.group_key and b.group_hold > 'none') as h
    ) as h
  ) as h));

comment on function dibs._why_limited is 'Which limit of its queue or group a job that is ready waits for; null if none.';
