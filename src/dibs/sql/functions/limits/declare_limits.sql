-- declare_limits: the limits of an app's tasks, set by who may set limits, and only compared for everyone else.

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
  perform dibs._check_items('declare_limits', array(select l ->> 'kind' from jsonb_array_elements(limits) as l), 'names');
  for v_limit in
    select l ->> 'kind' as kind, l -> 'concurrency' as most, l -> 'rate' as rate, count(*) over (partition by l ->> 'kind') as times
    from jsonb_array_elements(limits) as l
  loop
    perform dibs._check_name('the kind of a limit', v_limit.kind);
    if v_limit.times > 1 then
      raise exception using errcode = 'DI010', message = format('kind %L is declared %s times', v_limit.kind, v_limit.times),
        hint = 'declare the limit of each kind once';
    end if;
    if v_limit.most <> 'null' and (v_limit.most::text !~ '^[0-9]{1,7}$' or v_limit.most::integer > 1000000) then
      raise exception using errcode = 'DI010',
        message = format('the concurrency of kind %L is a number from 0 to 1000000, or null for no limit', v_limit.kind);
    end if;
    if coalesce(jsonb_typeof(v_limit.rate), 'null') not in ('number', 'null')
      or jsonb_typeof(v_limit.rate) = 'number' and v_limit.rate::numeric not between 0.000001 and 1000000 then
      raise exception using errcode = 'DI010',
        message = format('the rate of kind %L is a number from 0.000001 to 1000000, or null for none', v_limit.kind);
    end if;
  end loop;
end
$$;

comment on function dibs._check_declared is 'Refuse what declare_limits does not take, with a sentence that says why.';

create or replace function dibs._is_in_force(kind text, most integer, rate double precision) returns boolean
language sql stable
begin atomic
  select (not dibs._is_confined() or exists (select from dibs.task as t where t.kind = _is_in_force.kind and dibs._may_see_queue(t.queue)))
    and exists (
      select from dibs.limit_rule as b
      where b.is_set and b.scope = 'kind' and b.name = _is_in_force.kind
        and (most is null or b.concurrency <= most or b.concurrency is not null and b.declared = most)
        and (_is_in_force.rate is null or b.rate <= _is_in_force.rate or b.rate is not null and b.declared_rate = _is_in_force.rate));
end;

comment on function dibs._is_in_force is
'Whether no more than that many jobs of a kind run at once and start in a second: by a limit that is as strict, or one that was declared like
this and then changed by hand. A confined role is told of kinds in its queues only.';

create or replace function dibs._declare_limit(
  kind text, most integer, new_rate double precision, at timestamptz, out answer text, out to_count integer)
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_old dibs.limit_rule;
  v_most integer;
  v_rate double precision;
begin
  select b.* into v_old from dibs.limit_rule as b where b.is_set and b.scope = 'kind' and b.name = kind;
  -- What the code has not changed stays as it is; what it no longer declares and was changed by hand is theirs who changed it.
  v_most := case when most is distinct from v_old.declared or v_old.concurrency is null then coalesce(most,
    case when v_old.concurrency is distinct from v_old.declared then v_old.concurrency end) else v_old.concurrency end;
  v_rate := case when new_rate is distinct from v_old.declared_rate or v_old.rate is null then coalesce(new_rate,
    case when v_old.rate is distinct from v_old.declared_rate then v_old.rate end) else v_old.rate end;
  if v_most is null and v_rate is null then
    if not dibs._drop_limit('kind', kind, at) then
      answer := 'unchanged';
      return;
    end if;
    perform dibs._audit('drop_limit', detail => jsonb_build_object('kind', kind));
    answer := 'removed';
    return;
  end if;
  if (v_most, v_rate) is distinct from (v_old.concurrency, v_old.rate) then
    to_count := dibs._set_limit('kind', kind, v_most, v_rate, case when v_rate = v_old.rate then v_old.burst end, at);
  end if;
  update dibs.limit_rule as b set declared = most, declared_rate = new_rate
  where b.is_set and b.scope = 'kind' and b.name = kind and (b.declared, b.declared_rate) is distinct from (most, new_rate);
  answer := case when v_old.id is null then 'created'
    when (v_most, v_rate) is distinct from (v_old.concurrency, v_old.rate) then 'changed' else 'unchanged' end;
end
$$;

comment on function dibs._declare_limit is 'Set the limit of a kind as code declares it, if the code has changed since it was declared last; `to_count` as `_set_limit` returns it.';

create or replace function dibs.declare_limits(limits jsonb) returns table (kind text, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_may constant boolean := dibs._may_call('set_limit');
  v_now timestamptz := dibs.now();
  v_limit record;
  v_done record;
  v_to_count integer[] := array[]::integer[];
begin
  perform dibs._check_isolation('declare_limits');
  perform dibs._check_declared(limits);
  -- Workers that start with what is declared already do not wait for each other.
  if v_may and exists (
    select from jsonb_array_elements(limits) as l
    left join dibs.limit_rule as b on b.is_set and b.scope = 'kind' and b.name = l ->> 'kind'
    where (b.declared, b.declared_rate) is distinct from ((l ->> 'concurrency')::integer, (l ->> 'rate')::double precision)
      or b.declared is not null and b.concurrency is null or b.declared_rate is not null and b.rate is null) then
    perform dibs._begin_change();
  end if;
  for v_limit in
    select l ->> 'kind' as kind, (l ->> 'concurrency')::integer as most, (l ->> 'rate')::double precision as rate
    from jsonb_array_elements(limits) as l order by 1
  loop
    kind := v_limit.kind;
    if v_may then
      v_done := dibs._declare_limit(v_limit.kind, v_limit.most, v_limit.rate, v_now);
      answer := v_done.answer;
      v_to_count := array_remove(v_to_count || v_done.to_count, null);
    else
      answer := case when num_nonnulls(v_limit.most, v_limit.rate) = 0
        or dibs._is_in_force(v_limit.kind, v_limit.most, v_limit.rate) then 'unchanged' else 'refused' end;
    end if;
    return next;
  end loop;
  perform dibs._issue_units(v_to_count, v_now);
end
$$;

comment on function dibs.declare_limits is
'Worker protocol: bring the limits that code declares for its kinds to the database: a JSON array of {"kind", "concurrency", "rate"}. Each is set if the code has changed
since it was declared last, so what was changed by hand stays until then; null removes a limit that was declared before. Answers for each:
`created`, `changed`, `unchanged`, `removed`. For who may not set limits nothing is changed: `unchanged` says that the limit is kept, `refused` that it
is not.';
