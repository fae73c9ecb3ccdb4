-- A queue's own limit: passed before its jobs are looked at.

create or replace function dibs._reserve_queue_limit(queue dibs.queue, want integer, at timestamptz) returns dibs.queue_reservation
language plpgsql volatile
as $$
declare
  v_rule dibs.limit_rule;
  v_reservation dibs.queue_reservation;
begin
  select r.* into v_rule from dibs.limit_rule as r where r.is_set and r.scope = 'queue' and r.name = (queue).name;
  v_reservation.limit_id := v_rule.id;
  v_reservation.allowed := want;
  if v_rule.rate is not null then
    v_reservation.tat := dibs._take_tat(v_rule.id);
    if v_reservation.tat is null then
      v_reservation.allowed := 0;
      return v_reservation;
    end if;
    v_reservation.tat := dibs._bounded_tat(v_rule, v_reservation.tat, at);
    v_reservation.allowed := least(want,
      dibs._tokens(v_rule.rate, coalesce(v_rule.burst, dibs._default_burst(v_rule.rate)), v_reservation.tat, at));
  end if;
  if v_rule.concurrency is not null then
    v_reservation.has_units := true;
    if v_reservation.allowed > 0 then
      v_reservation.allowed := dibs._take_units(v_rule.id, v_reservation.allowed, at);
    end if;
  end if;
  return v_reservation;
end
$$;

comment on function dibs._reserve_queue_limit is
'How many jobs of a queue may start by its own limit and rate; these are taken, until _settle_queue_limit.';

create or replace function dibs._queue_limit_units(reservation dibs.queue_reservation) returns dibs.held_units
language sql immutable
return case when (reservation).has_units then row(array[(reservation).limit_id], array[1])::dibs.held_units end;

comment on function dibs._queue_limit_units is 'What each job of a claim holds of its queue''s own limit.';

create or replace function dibs._settle_queue_limit(reservation dibs.queue_reservation, used integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  if reservation.tat is not null then
    insert into dibs.limit_rate (limit_id, tat)
    select r.id, case when used = 0 then t.tat else greatest(t.tat, at) + dibs._token_time(r.rate, used) end
    from dibs.limit_rule as r cross join lateral dibs._bounded_tat(r, reservation.tat, at) as t (tat) where r.id = reservation.limit_id and r.rate is not null;
  end if;
  if reservation.has_units and used < reservation.allowed then
    perform dibs._return_units(reservation.limit_id, reservation.allowed - used, at);
  end if;
end
$$;

comment on function dibs._settle_queue_limit is 'Give back what was taken of a queue''s limit and rate and not used.';

create or replace function dibs._settle_queue_limits(scans dibs.queue_scan[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_scan dibs.queue_scan;
begin
  foreach v_scan in array scans loop
    if (v_scan.queue).has_limit then
      perform dibs._settle_queue_limit(v_scan.reservation, (v_scan.reservation).allowed - v_scan.allowed, at);
    end if;
  end loop;
end
$$;

comment on function dibs._settle_queue_limits is 'Leave the gates of all queues that a claim has served.';
