-- A queue's own limit: passed before its jobs are looked at.

create or replace function dibs._enter_gate(queue dibs.queue, want integer, at timestamptz,
  out limit_id integer, out has_slots boolean, out allowed integer, out tat timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  v_rule dibs.limit_rule;
begin
  select b.* into v_rule from dibs.limit_rule as b where b.scope = 'queue' and b.name = (queue).name;
  limit_id := v_rule.id;
  has_slots := v_rule.concurrency is not null;
  allowed := want;
  if v_rule.rate is not null then
    -- Another claim holds the row: it is spending at this moment.
    delete from dibs.limit_rate as p
    where p.ctid = (select o.ctid from dibs.limit_rate as o where o.limit_id = v_rule.id order by o.n desc limit 1 for update skip locked)
    returning p.tat into tat;
    if not found then
      allowed := 0;
      return;
    end if;
    allowed := least(allowed, dibs._tokens(v_rule.rate, coalesce(v_rule.burst, dibs._default_burst(v_rule.rate)), tat, at));
  end if;
  if has_slots and allowed > 0 then
    allowed := dibs._take_units(v_rule.id, allowed, at);
  end if;
end
$$;

comment on function dibs._enter_gate is 'How many jobs of a queue may start by its own limit and rate; these are taken, until leave_gate.';

create or replace function dibs._leave_gate(limit_id integer, has_slots boolean, allowed integer, tat timestamptz, used integer, at timestamptz)
returns void
language plpgsql volatile
as $$
begin
  if tat is not null then
    insert into dibs.limit_rate (limit_id, tat)
    select b.id, case when used = 0 then tat else greatest(tat, at) + dibs._token_time(b.rate, used) end
    from dibs.limit_rule as b where b.id = _leave_gate.limit_id;
  end if;
  if has_slots and used < allowed then
    perform dibs._give_units(limit_id, allowed - used, at);
  end if;
end
$$;

comment on function dibs._leave_gate is 'Give back what was taken of a queue''s limit and rate and not used.';

create or replace function dibs._gate_units(gates dibs.gate[], place integer) returns integer[]
language sql immutable parallel safe
return (select array[g.limit_id, 1] from unnest(gates) as g where g.place = _gate_units.place and g.has_slots);

comment on function dibs._gate_units is 'What each job of a queue holds of its queue''s limit; null if that has none.';
