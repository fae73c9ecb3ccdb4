-- What why says of limits.

create or replace function dibs._holders(of_limit integer) returns text
language sql stable
return (
  select case when count(*) = 0 then 'nobody holds it' else format('%s hold%s it: %s%s', count(*), case count(*) when 1 then 's' else '' end,
    string_agg(l.id || coalesce(' (worker ' || l.worker || ')', ''), ', ' order by l.claimed_at) filter (where l.n <= 3),
    case when count(*) > 3 then ', …' else '' end) end
  from (
    select l.id, l.worker, l.claimed_at, row_number() over (order by l.claimed_at) as n from dibs.lease as l
    where exists (select from generate_series(1, cardinality(l.slots), 2) as i where l.slots[i] = of_limit)
  ) as l);

comment on function dibs._holders is 'Who holds units of a limit, in words.';

create or replace function dibs._why_blocked(of_limit integer, waits_for text, job_id uuid) returns text
language sql stable
return (
  select format('It is due, but waits for %s of the limit of %s, which is %s; %s.',
    coalesce((select n.units from dibs._needs(job_id) as n where n.id = of_limit), 1), waits_for, coalesce(b.concurrency::text, 'gone'),
    dibs._holders(of_limit))
  from (select 1) as one left join dibs.limit_rule as b on b.id = of_limit);

comment on function dibs._why_blocked is 'Explain what a blocked job waits for and who holds it.';

create or replace function dibs._why_limited(queue_name text, group_name text, lane uuid, at timestamptz) returns text
language sql stable
return coalesce((
  select case
    when b.concurrency is not null and not exists (select from dibs.limit_unit as s where s.limit_id = b.id and s.units > 0)
      then format('queue %L may run %s at once; %s', queue_name, b.concurrency, dibs._holders(b.id))
    when b.rate is not null and dibs._tokens(b.rate, coalesce(b.burst, dibs._default_burst(b.rate)),
        (select p.tat from dibs.limit_rate as p where p.limit_id = b.id order by p.n desc limit 1), at) = 0
      then format('queue %L starts no more than %s a second', queue_name, b.rate)
  end
  from dibs.limit_rule as b where b.scope = 'queue' and b.name = queue_name), (
  select case
    when g.concurrency is not null and dibs._held_turns(g.id) >= g.concurrency then format('its group %L may run %s at once; held by %s', g.name, g.concurrency,
      (select string_agg(l.id || coalesce(' (worker ' || l.worker || ')', ''), ', ') from (
        select l.id, l.worker from dibs.lease as l where l.lane = g.id limit 3) as l))
    when g.concurrency = 1 and exists (select from dibs.turn as t where t.lane = g.id and t.next is not null)
      then format('its group %L is in strict order and waits for job %s', g.name, (select t.next from dibs.turn as t where t.lane = g.id and t.next is not null limit 1))
    when g.rate is not null and dibs._tokens(g.rate, coalesce(g.burst, dibs._default_burst(g.rate)),
        (select max(t.tat) from dibs.turn as t where t.lane = g.id), at) = 0
      then format('its group %L starts no more than %s a second', g.name, g.rate)
  end
  from dibs.lane as g where g.id = _why_limited.lane));

comment on function dibs._why_limited is 'Which limit of its queue or group a job that is ready waits for; null if none.';
