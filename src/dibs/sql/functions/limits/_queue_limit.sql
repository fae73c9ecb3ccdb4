-- A queue's own limit. A claim reserves units and tokens before it looks at the queue's tickets, so tickets that may
-- not start stay ready. When it knows how many jobs it took, it returns the rest.

create or replace function dibs._reserve_queue_limit(queue dibs.queue, want integer, at timestamptz)
returns dibs.queue_reservation
language plpgsql volatile
as $$
declare
  v_rule dibs.limit_rule;
  v_reservation dibs.queue_reservation;
  v_tokens integer := want;
begin
  select r.* into v_rule from dibs.limit_rule as r where r.is_set and r.of_queue = (queue).name;
  v_reservation.limit_id := v_rule.id;
  v_reservation.has_rate := v_rule.rate is not null;
  if v_reservation.has_rate then
    v_tokens := dibs._take_tokens(v_rule.id, want, at);
  end if;
  v_reservation.allowed := v_tokens;
  if v_rule.concurrency is not null and v_tokens > 0 then
    v_reservation.units.limit_ids := array[v_rule.id];
    v_reservation.units.limit_units := array[1];
    v_reservation.allowed := dibs._take_units(v_rule.id, v_tokens, at);
    if v_reservation.has_rate and v_reservation.allowed < v_tokens then
      perform dibs._return_tokens(v_rule.id, v_tokens - v_reservation.allowed);
    end if;
  end if;
  return v_reservation;
end
$$;

comment on function dibs._reserve_queue_limit is
'Take up to `want` tokens of a queue''s own limit, and as many units. The claim must return the tokens and units that it
does not use (_return_tokens, _return_units) in the same transaction.';
