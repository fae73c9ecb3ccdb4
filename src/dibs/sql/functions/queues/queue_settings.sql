-- queue_settings: the policy of a queue, and where each value comes from.

create or replace function dibs._find_last_setters(queue text) returns table (setting text, who text, at timestamptz)
language sql stable
begin atomic
  select distinct on (k.name) k.name, coalesce(a.actor, a.role), a.at
  from (
    select a.* from dibs.audit as a
    where a.verb = 'set_queue' and a.queue = _find_last_setters.queue
      -- Leave out a queue of the same name that was dropped.
      and a.at >= (select q.created_at from dibs.queue as q where q.name = _find_last_setters.queue)
    order by a.id desc limit 1000
  ) as a
  cross join lateral jsonb_object_keys(a.detail -> 'policy') as k (name)
  order by k.name, a.id desc;
end;

comment on function dibs._find_last_setters is
'The actor or login that last set each setting of a queue, and when, among the newest 1,000 changes in the audit.';

create or replace function dibs._policy_in_seconds(policy jsonb) returns jsonb
language sql stable
begin atomic
  select jsonb_object_agg(p.key, case when a.atttypid = 'interval'::regtype and p.value <> 'null'
    then to_jsonb(extract(epoch from (p.value #>> '{}')::interval)) else p.value end)
  from jsonb_each(policy) as p
  join pg_catalog.pg_attribute as a on a.attrelid = 'dibs.queue_policy'::regclass and a.attname = p.key;
end;

comment on function dibs._policy_in_seconds is 'The settings in a row of a queue, with intervals as seconds.';

create or replace function dibs.queue_settings(queue text)
returns table (setting text, value jsonb, standard jsonb, source text, set_by text, set_at timestamptz, tasks jsonb)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id constant integer := dibs._queue_number(queue);
  v_now constant jsonb := (select dibs._policy_in_seconds(to_jsonb(q)) from dibs.queue as q where q.id = v_id);
  v_made constant jsonb := (select dibs._policy_in_seconds(d.policy) from dibs.default_policy as d);
begin
  return query
  select n.name, v_now -> n.name, v_made -> n.name,
    case when b.at is not null or v_now -> n.name <> v_made -> n.name then 'set' else 'default' end, b.who, b.at,
    coalesce((
      select jsonb_object_agg(t.kind, t.options -> n.name) from (
        select t.kind, t.options from dibs.task as t
        where t.queue = queue_settings.queue and t.options -> n.name <> 'null' order by t.kind limit 20) as t), '{}')
  from unnest(dibs._field_names('dibs.queue_policy')) with ordinality as n (name, place)
  left join dibs._find_last_setters(queue) as b on b.setting = n.name
  order by n.place;
end
$$;

comment on function dibs.queue_settings is
'Each setting of a queue: its value, the value of a new queue (`standard`), and where the value comes from: `default`,
or `set`, with who set it and when as far as the audit knows. Times are in seconds. `tasks` are tasks of the queue, 20
at most, that set their own value in code.';
