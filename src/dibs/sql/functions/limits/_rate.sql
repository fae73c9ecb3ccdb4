-- Rates: how many jobs may start per second. A token lets one job start. The state of a rate is one timestamp, its tat;
-- values/_rates.sql has the arithmetic.
--
-- A claim that takes tokens deletes the newest row of limit_rate and inserts its successor, so the next claim finds
-- the live row first in the index, before the dead ones. Until that claim ends, other claims get no tokens.

create or replace function dibs._free_tokens(rule dibs.limit_rule, at timestamptz) returns integer
language sql stable
return case when (rule).rate is null then 2147483647 else coalesce((
  select dibs._tokens((rule).rate, (rule).burst, p.tat, at) from dibs.limit_rate as p
  where p.limit_id = (rule).id order by p.n desc limit 1), 0) end;

comment on function dibs._free_tokens is
'Return how many tokens the rate of a limit has, without taking any; 2147483647 if the limit has no rate.';

create or replace function dibs._take_tokens(of_limit integer, want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
declare
  v_rule dibs.limit_rule;
  v_tat timestamptz;
  v_taken integer;
begin
  -- Find the newest row first, then try to lock it. If another claim has it locked, take no tokens: an older row, which
  -- a change of the rate may leave behind, does not count.
  delete from dibs.limit_rate as p
  where p.ctid = (
    select o.ctid
    from (select o.n from dibs.limit_rate as o where o.limit_id = of_limit order by o.n desc limit 1) as newest
    cross join lateral (
      select o.ctid from dibs.limit_rate as o
      where o.limit_id = of_limit and o.n = newest.n for update skip locked) as o)
  returning p.tat into v_tat;
  if not found then
    return 0;
  end if;
  select r.* into v_rule from dibs.limit_rule as r where r.id = of_limit;
  if v_rule.rate is null then
    -- The limit lost its rate after the claim read it.
    return want;
  end if;
  -- The tat is at most one burst ahead, unless the rate was slower before or the clock was set back.
  v_tat := least(v_tat, at + dibs._burst(v_rule.rate, v_rule.burst) / v_rule.rate * interval '1 second');
  v_taken := least(want, dibs._tokens(v_rule.rate, v_rule.burst, v_tat, at));
  insert into dibs.limit_rate (limit_id, tat)
  values (of_limit, greatest(v_tat, at) + v_taken / v_rule.rate * interval '1 second');
  return v_taken;
end
$$;

comment on function dibs._take_tokens is
'Take up to `want` tokens of a limit''s rate, and return how many; 0 if another claim has the rate locked.';

create or replace function dibs._return_tokens(of_limit integer, tokens integer) returns void
language plpgsql volatile
as $$
begin
  -- The newest row is the one that this transaction wrote when it took the tokens, unless the rate was set again since.
  update dibs.limit_rate as p set tat = p.tat - tokens / r.rate * interval '1 second'
  from dibs.limit_rule as r
  where r.id = of_limit and r.rate is not null and p.ctid = (
    select o.ctid from dibs.limit_rate as o
    where o.limit_id = of_limit order by o.n desc limit 1 for update skip locked);
end
$$;

comment on function dibs._return_tokens is
'Return tokens that this claim took and did not use. Do nothing for a limit without a rate.';

create or replace function dibs._drop_rate(of_limit integer) returns void
language plpgsql volatile
as $$
begin
  delete from dibs.limit_rate as p
  where p.ctid = any (array(
    select o.ctid from dibs.limit_rate as o where o.limit_id = of_limit for update skip locked));
end
$$;

comment on function dibs._drop_rate is
'Delete the rows of a rate. Skip a row that a claim has locked. That claim inserts the next row, which repair_limits
deletes if the rate is gone.';
