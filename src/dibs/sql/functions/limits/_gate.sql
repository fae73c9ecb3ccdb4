-- A queue's own limit: passed before its jobs are looked at.

create or replace function dibs._enter_gate(queue dibs.queue, want integer, at timestamptz) returns dibs.gate
language plpgsql volatile
as $$
declare
  v_rule dibs.limit_rule;
  v_gate dibs.gate;
begin
  select r.* into v_rule from dibs.limit_rule as r where r.is_set and r.scope = 'queue' and r.name = (queue).name;
  v_gate.limit_id := v_rule.id;
  v_gate.allowed := want;
  if v_rule.rate is not null then
    v_gate.tat := dibs._open_rate(v_rule.id);
    if v_gate.tat is null then
      v_gate.allowed := 0;
      return v_gate;
    end if;
    v_gate.tat := dibs._bounded_tat(v_rule, v_gate.tat, at);
    v_gate.allowed := least(want,
      dibs._tokens(v_rule.rate, coalesce(v_rule.burst, dibs._default_burst(v_rule.rate)), v_gate.tat, at));
  end if;
  if v_rule.concurrency is not null then
    v_gate.has_units := true;
    if v_gate.allowed > 0 then
      v_gate.allowed := dibs._take_units(v_rule.id, v_gate.allowed, at);
    end if;
  end if;
  return v_gate;
end
$$;

comment on function dibs._enter_gate is
'How many jobs of a queue may start by its own limit and rate; these are taken, until _leave_gate.';

create or replace function dibs._gate_needs(gate dibs.gate) returns dibs.needed
language sql immutable
return case when (gate).has_units then row(array[(gate).limit_id], array[1])::dibs.needed end;

comment on function dibs._gate_needs is 'What each job of a claim holds of its queue''s own limit.';

create or replace function dibs._leave_gate(gate dibs.gate, used integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  if gate.tat is not null then
    insert into dibs.limit_rate (limit_id, tat)
    select r.id, case when used = 0 then t.tat else greatest(t.tat, at) + dibs._token_time(r.rate, used) end
    from dibs.limit_rule as r cross join lateral dibs._bounded_tat(r, gate.tat, at) as t (tat) where r.id = gate.limit_id and r.rate is not null;
  end if;
  if gate.has_units and used < gate.allowed then
    perform dibs._give_units(gate.limit_id, gate.allowed - used, at);
  end if;
end
$$;

comment on function dibs._leave_gate is 'Give back what was taken of a queue''s limit and rate and not used.';

create or replace function dibs._leave_queue_gates(scans dibs.queue_scan[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_scan dibs.queue_scan;
begin
  foreach v_scan in array scans loop
    if (v_scan.queue).has_limit then
      perform dibs._leave_gate(v_scan.gate, (v_scan.gate).allowed - v_scan.allowed, at);
    end if;
  end loop;
end
$$;

comment on function dibs._leave_queue_gates is 'Leave the gates of all queues that a claim has served.';
