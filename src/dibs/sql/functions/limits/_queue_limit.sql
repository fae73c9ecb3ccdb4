-- A queue's own limit: a claim reserves from it before it looks at the queue's tickets, so they stay ready.

create or replace function dibs._reserve_queue_limit(queue dibs.queue, want integer, at timestamptz)
returns dibs.queue_reservation
language plpgsql volatile
as $$
declare
  v_rule dibs.limit_rule;
  v_reservation dibs.queue_reservation;
begin
  select r.* into v_rule from dibs.limit_rule as r where r.is_set and r.of_queue = (queue).name;
  v_reservation.limit_id := v_rule.id;
  v_reservation.allowed := want;
  if v_rule.rate is not null then
    v_reservation.tat := dibs._take_tat(v_rule.id);
    if v_reservation.tat is null then
      v_reservation.allowed := 0;
      return v_reservation;
    end if;
    v_reservation.tat := dibs._bounded_tat(v_rule, v_reservation.tat, at);
    v_reservation.allowed := least(want, dibs._tokens_at(v_rule, v_reservation.tat, at));
  end if;
  if v_rule.concurrency is not null then
    v_reservation.units := row(array[v_rule.id], array[1]);
    if v_reservation.allowed > 0 then
      v_reservation.allowed := dibs._take_units(v_rule.id, v_reservation.allowed, at);
    end if;
  end if;
  return v_reservation;
end
$$;

comment on function dibs._reserve_queue_limit is
'Take up to `want` units of a queue''s own limit, and open its rate for as many tokens. _settle_queue_limits must
follow in the same transaction.';

create or replace function dibs._settle_queue_limits(scans dibs.queue_scan[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_scan dibs.queue_scan;
  v_reservation dibs.queue_reservation;
  v_used integer;
begin
  foreach v_scan in array scans loop
    continue when not (v_scan.queue).has_limit;
    v_reservation := v_scan.reservation;
    v_used := v_reservation.allowed - v_scan.allowed;
    if v_reservation.tat is not null then
      insert into dibs.limit_rate (limit_id, tat)
      select r.id, case when v_used = 0 then t.tat else greatest(t.tat, at) + dibs._token_time(r.rate, v_used) end
      from dibs.limit_rule as r cross join lateral dibs._bounded_tat(r, v_reservation.tat, at) as t (tat)
      where r.id = v_reservation.limit_id and r.rate is not null;
    end if;
    if (v_reservation.units).limit_ids is not null and v_scan.allowed > 0 then
      perform dibs._return_units(v_reservation.limit_id, v_scan.allowed, at);
    end if;
  end loop;
end
$$;

comment on function dibs._settle_queue_limits is
'Spend the rates of queues'' own limits for the jobs that a claim took, and return the units that it reserved and did
not use (scan.allowed).';
