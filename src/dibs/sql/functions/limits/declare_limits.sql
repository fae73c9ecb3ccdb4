-- declare_limits: the limits that an app's code declares for its kinds. For a caller who may set limits they are set;
-- for any other they are compared with the limits in force.

create or replace function dibs._check_declared(limits jsonb) returns void
language plpgsql stable
as $$
declare
  v_limit record;
begin
  if coalesce(jsonb_typeof(limits), 'null') <> 'array' or exists (
    select from jsonb_array_elements(limits) as l where jsonb_typeof(l) <> 'object') then
    raise exception using errcode = 'DI010', message = 'declare_limits takes a JSON array of limits of kinds',
      hint = 'pass [{"kind": "render", "concurrency": 4, "rate": 10}, …]';
  end if;
  perform dibs._check_items('declare_limits',
    array(select l ->> 'kind' from jsonb_array_elements(limits) as l), 'names');
  for v_limit in
    select l ->> 'kind' as kind, nullif(l -> 'concurrency', 'null') as concurrency, nullif(l -> 'rate', 'null') as rate,
      count(*) over (partition by l ->> 'kind') as times
    from jsonb_array_elements(limits) as l
  loop
    perform dibs._check_name('the kind of a limit', v_limit.kind);
    if v_limit.times > 1 then
      raise exception using errcode = 'DI010',
        message = format('kind %L is declared %s times', v_limit.kind, v_limit.times),
        hint = 'declare the limit of each kind once';
    end if;
    if v_limit.concurrency::text !~ '^[0-9]{1,7}$' or v_limit.concurrency::integer > 1000000 then
      raise exception using errcode = 'DI010',
        message = format('the concurrency of kind %L is a number from 0 to 1000000, or null for no limit',
          v_limit.kind);
    end if;
    if jsonb_typeof(v_limit.rate) <> 'number' or v_limit.rate::numeric not between 0.000001 and 1000000 then
      raise exception using errcode = 'DI010',
        message = format('the rate of kind %L is a number from 0.000001 to 1000000, or null for none', v_limit.kind);
    end if;
  end loop;
end
$$;

comment on function dibs._check_declared is
'Raise DI010 if the argument of declare_limits is malformed or out of range.';

create or replace function dibs._is_in_force(kind text, concurrency integer, rate double precision) returns boolean
language sql stable
begin atomic
  select (not dibs._is_confined()
      or exists (select from dibs.task as t where t.kind = _is_in_force.kind and dibs._may_see_queue(t.queue)))
    and exists (
      select from dibs.limit_rule as r
      where r.is_set and r.scope = 'kind' and r.name = _is_in_force.kind
        and (_is_in_force.concurrency is null or r.concurrency <= _is_in_force.concurrency
          or (r.concurrency is not null and r.declared = _is_in_force.concurrency))
        and (_is_in_force.rate is null or r.rate <= _is_in_force.rate
          or (r.rate is not null and r.declared_rate = _is_in_force.rate)));
end;

comment on function dibs._is_in_force is
'True if a kind has a limit that is at least as strict as a declared one, or if exactly this was declared and an
operator changed it since. A null number asks for nothing. A confined role gets true only for kinds in its queues.';

create or replace function dibs._pick_declared(
  declared double precision, last double precision, current double precision)
returns double precision
language sql immutable
return case
  when declared is null then nullif(current, last)
  when declared = last then coalesce(current, declared)
  else declared
end;

comment on function dibs._pick_declared is
'Return the number (a concurrency or a rate) that a limit gets; null for none. `declared` is the number that code
declares now, `last` the one it declared last, and `current` the number that the limit has now. If `current` differs
from `last`, an operator changed it.

declared | current     | result
---------+-------------+----------------------------------------------
null     | last        | null: code withdraws its number
null     | not last    | current: an operator''s change stays
last     | not null    | current: an operator''s change stays
last     | null        | declared: the limit lost its number
not last | any         | declared: code has changed its number';

create or replace function dibs._declare_limit(
  kind text, new_concurrency integer, new_rate double precision, at timestamptz, out answer text,
  out to_issue integer)
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_old dibs.limit_rule;
  v_concurrency integer;
  v_rate double precision;
  v_changes boolean;
begin
  select r.* into v_old from dibs.limit_rule as r where r.is_set and r.scope = 'kind' and r.name = kind;
  v_concurrency := dibs._pick_declared(new_concurrency, v_old.declared, v_old.concurrency);
  v_rate := dibs._pick_declared(new_rate, v_old.declared_rate, v_old.rate);
  if v_concurrency is null and v_rate is null then
    if not dibs._drop_limit('kind', kind, at) then
      answer := 'unchanged';
      return;
    end if;
    perform dibs._audit('drop_limit', detail => jsonb_build_object('kind', kind));
    answer := 'removed';
    return;
  end if;
  v_changes := (v_concurrency, v_rate) is distinct from (v_old.concurrency, v_old.rate);
  if v_changes then
    -- Code declares no burst. Keep an operator's burst as long as the rate stays.
    to_issue := dibs._set_limit(
      'kind', kind, v_concurrency, v_rate, case when v_rate = v_old.rate then v_old.burst end, at);
  end if;
  update dibs.limit_rule as r set declared = new_concurrency, declared_rate = new_rate
  where r.is_set and r.scope = 'kind' and r.name = kind
    and (r.declared, r.declared_rate) is distinct from (new_concurrency, new_rate);
  answer := case when v_old.id is null then 'created' when v_changes then 'changed' else 'unchanged' end;
end
$$;

comment on function dibs._declare_limit is
'Code declares a new concurrency and rate of a kind: set them as _pick_declared decides, or drop the limit if it gets
neither. `to_issue` is the id that the caller passes to _issue_units, or null.';

create or replace function dibs.declare_limits(limits jsonb) returns table (kind text, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_may constant boolean := dibs._may_call('set_limit');
  v_now constant timestamptz := dibs.now();
  v_may_change boolean;
  v_limit record;
  v_done record;
  v_to_issue integer[] := array[]::integer[];
begin
  perform dibs._check_isolation('declare_limits');
  perform dibs._check_declared(limits);
  -- A limit may have to change if its declaration did, or if it lost a number that was declared. Otherwise do not lock
  -- out other changes: workers that start and declare nothing new need not wait for each other.
  v_may_change := v_may and exists (
    select from jsonb_array_elements(limits) as l
    left join dibs.limit_rule as r on r.is_set and r.scope = 'kind' and r.name = l ->> 'kind'
    where (r.declared, r.declared_rate) is distinct from
        ((l ->> 'concurrency')::integer, (l ->> 'rate')::double precision)
      or (r.declared is not null and r.concurrency is null) or (r.declared_rate is not null and r.rate is null));
  if v_may_change then
    perform dibs._begin_change();
  end if;
  for v_limit in
    select l ->> 'kind' as kind, (l ->> 'concurrency')::integer as concurrency,
      (l ->> 'rate')::double precision as rate
    from jsonb_array_elements(limits) as l order by 1
  loop
    kind := v_limit.kind;
    if v_may_change then
      v_done := dibs._declare_limit(v_limit.kind, v_limit.concurrency, v_limit.rate, v_now);
      answer := v_done.answer;
      v_to_issue := array_remove(v_to_issue || v_done.to_issue, null);
    elsif v_may or num_nonnulls(v_limit.concurrency, v_limit.rate) = 0
      or dibs._is_in_force(v_limit.kind, v_limit.concurrency, v_limit.rate) then
      answer := 'unchanged';
    else
      answer := 'refused';
    end if;
    return next;
  end loop;
  perform dibs._issue_units(v_to_issue, v_now);
end
$$;

comment on function dibs.declare_limits is
'Worker protocol: declare the limits of an app''s kinds, as a JSON array of {"kind", "concurrency", "rate"}. A limit
changes only if its declaration has changed since the last call, so an operator''s change stays until then; null
removes a number that was declared before. Return an answer for each kind: `created`, `changed`, `unchanged` or
`removed`. A caller who may not set limits changes nothing: `unchanged` says that a limit at least as strict is in
force, `refused` that none is.';
