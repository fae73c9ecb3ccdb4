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
      hint = 'pass [{"kind": "render", "concurrency": 4}, …]';
  end if;
  perform dibs._check_items('declare_limits', array(select l ->> 'kind' from jsonb_array_elements(limits) as l), 'names');
  for v_limit in select l ->> 'kind' as kind, l -> 'concurrency' as most from jsonb_array_elements(limits) as l loop
    perform dibs._check_name('the kind of a limit', v_limit.kind);
    if v_limit.most <> 'null' and v_limit.most::text !~ '^[0-9]{1,7}$' then
      raise exception using errcode = 'DI010',
        message = format('the concurrency of kind %L is a number from 0 to 1000000, or null for no limit', v_limit.kind);
    end if;
  end loop;
end
$$;

comment on function dibs._check_declared is 'Refuse what declare_limits does not take, with a sentence that says why.';

create or replace function dibs._is_kept(kind text, most integer) returns boolean
language sql stable
begin atomic
  select (not dibs._is_confined() or exists (select from dibs.task as t where t.kind = _is_kept.kind and dibs._sees(t.queue)))
    and exists (
      select from dibs.limit_rule as b
      where b.scope = 'kind' and b.name = _is_kept.kind and (b.concurrency <= most or b.concurrency is not null and b.declared = most));
end;

comment on function dibs._is_kept is
'Whether no more than that many jobs of a kind run at once: by a limit that is as strict, or one that was declared like this and then
changed by hand. A confined role is told of kinds in its queues only.';

create or replace function dibs._declare_limit(kind text, most integer, at timestamptz) returns text
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_old dibs.limit_rule;
begin
  select b.* into v_old from dibs.limit_rule as b where b.scope = 'kind' and b.name = kind;
  if v_old.declared is not distinct from most and (most is null or v_old.concurrency is not null) then
    return 'unchanged';
  end if;
  if most is null and v_old.concurrency is not distinct from v_old.declared and v_old.rate is null then
    perform dibs.unset_limit(kind => kind);
    return 'removed';
  end if;
  -- What the code no longer declares and was changed by hand is theirs who changed it.
  if most is not null and v_old.concurrency is distinct from most then
    perform dibs._change_limit('kind', kind, most, v_old.rate, v_old.burst, at);
  end if;
  update dibs.limit_rule as b set declared = most where b.scope = 'kind' and b.name = kind;
  return case when v_old.concurrency is null then 'created' when coalesce(most, v_old.concurrency) = v_old.concurrency then 'unchanged'
    else 'changed' end;
end
$$;

comment on function dibs._declare_limit is 'Set the limit of a kind as code declares it, if the code has changed since it was declared last.';

create or replace function dibs.declare_limits(limits jsonb) returns table (kind text, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  v_may constant boolean := dibs._may_call('set_limit');
  v_limit record;
begin
  perform dibs._check_isolation('declare_limits');
  perform dibs._check_declared(limits);
  for v_limit in
    select l ->> 'kind' as kind, (l ->> 'concurrency')::integer as most from jsonb_array_elements(limits) as l order by 1
  loop
    kind := v_limit.kind;
    answer := case
      when v_may then dibs._declare_limit(v_limit.kind, v_limit.most, dibs.now())
      when v_limit.most is null or dibs._is_kept(v_limit.kind, v_limit.most) then 'unchanged'
      else 'refused' end;
    return next;
  end loop;
end
$$;

comment on function dibs.declare_limits is
'Bring the limits that code declares for its kinds to the database: a JSON array of {"kind", "concurrency"}. Each is set if the code has changed
since it was declared last, so what was changed by hand stays until then; null removes a limit that was declared before. Answers for each:
`created`, `changed`, `unchanged`, `removed`. For who may not set limits nothing is changed: `unchanged` says that the limit is kept, `refused` that it
is not.';
