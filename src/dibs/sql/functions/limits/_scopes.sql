-- The scopes of limits: queue, kind, resource. Everything that depends on the scope is here, in schema/limits.sql, and
-- in the arguments of set_limit and drop_limit.

create or replace function dibs._scope_of(queue text, kind text, resource text) returns text
language plpgsql immutable
as $$
begin
  if num_nonnulls(queue, kind, resource) <> 1 then
    raise exception using errcode = 'DI010', message = 'a limit is of one thing: a queue, a kind or a resource',
      hint = 'such as: select dibs.set_limit(kind => ''render'', concurrency => 4); for a group use dibs.set_group';
  end if;
  return case when queue is not null then 'queue' when kind is not null then 'kind' else 'resource' end;
end
$$;

comment on function dibs._scope_of is
'Return the scope of a limit, given its name in one of three arguments. Raise DI010 unless exactly one is given.';

create or replace function dibs._job_needs(job_id uuid)
returns table (need_id integer, units integer, limit_units integer)
language sql stable
begin atomic
  select need.need_id, need.units, l.units
  from (
    select r.id, r.concurrency, r.rate, 1 as units from dibs.job as j
    cross join lateral (
      select r.id, r.concurrency, r.rate from dibs.limit_rule as r
      where r.is_set and r.scope = 'kind' and r.name = j.kind) as r
    where j.id = job_id
    union all
    select r.id, r.concurrency, r.rate, (e.value)::integer from dibs.job as j
    cross join lateral jsonb_each(j.resources) as e
    cross join lateral (
      select r.id, r.concurrency, r.rate from dibs.limit_rule as r
      where r.is_set and r.scope = 'resource' and r.name = e.key) as r
    where j.id = job_id and j.resources is not null
  ) as l
  cross join lateral (
    select l.id, l.units where l.concurrency is not null
    union all
    select -l.id, 1 where l.rate is not null
  ) as need (need_id, units);
end;

comment on function dibs._job_needs is
'Return what a job must take with its ticket. A positive need_id is a limit''s id: the job needs that many units of it,
and holds them while it runs. A negative need_id stands for the rate of limit -need_id: the job needs one token of it.
limit_units: how many units of the limit the job needs, also in the row of its token. A queue''s own limit is not among
them; a claim reserves that for the whole queue.';

create or replace function dibs._runs_without_units(of_limit integer) returns table (id uuid, units integer)
language sql stable
begin atomic
  select l.id, u.units
  from dibs.limit_rule as r
  cross join dibs.lease as l
  join dibs.queue as q on q.id = l.queue_id
  join dibs.job as j on j.id = l.id
  cross join lateral (
    select case r.scope
      when 'queue' then case when q.name = r.name then 1 end
      when 'kind' then case when j.kind = r.name then 1 end
      when 'resource' then (j.resources -> r.name)::integer
    end as units
  ) as u
  where r.id = of_limit and u.units is not null and not coalesce(of_limit = any (l.limit_ids), false)
  order by l.id;
end;

comment on function dibs._runs_without_units is
'Return the running jobs that a limit concerns and that hold no units of it yet, with the units each should hold.';
