-- Rates: how many jobs may start per second. A token lets one job start. Each rate is a GCRA with one timestamp, its
-- tat (values/_rates.sql has the arithmetic).

create or replace function dibs._take_tat(of_limit integer) returns timestamptz
language plpgsql volatile
as $$
declare
  v_tat timestamptz;
begin
  -- Only the newest row counts. If another claim has it locked, an older one, left by a change of the rate, must not be
  -- used.
  delete from dibs.limit_rate as p
  where p.ctid = (
    select o.ctid
    from (select o.n from dibs.limit_rate as o where o.limit_id = of_limit order by o.n desc limit 1) as newest
    cross join lateral (
      select o.ctid from dibs.limit_rate as o
      where o.limit_id = of_limit and o.n = newest.n for update skip locked) as o)
  returning p.tat into v_tat;
  return v_tat;
end
$$;

comment on function dibs._take_tat is
'Delete the newest row of a rate and return its tat. The caller must insert a new row. Null if another claim has taken
it.';

create or replace function dibs._tokens_at(rule dibs.limit_rule, tat timestamptz, at timestamptz) returns integer
language sql immutable
return dibs._tokens((rule).rate, coalesce((rule).burst, dibs._default_burst((rule).rate)), tat, at);

comment on function dibs._tokens_at is
'Return how many tokens a limit''s rate has at a time, given its tat; 2147483647 without a rate.';

create or replace function dibs._bounded_tat(rule dibs.limit_rule, tat timestamptz, at timestamptz) returns timestamptz
language sql immutable
return least(tat, at + dibs._token_time((rule).rate, coalesce((rule).burst, dibs._default_burst((rule).rate))));

comment on function dibs._bounded_tat is
'Return a tat, but at most one burst after `at`: a slower rate before, or a clock that was ahead, may have left a later
one.';

create or replace function dibs._free_tokens(rule dibs.limit_rule, at timestamptz) returns integer
language sql stable
return case when (rule).rate is null then 2147483647 else coalesce((
  select dibs._tokens_at(rule, o.tat, at) from dibs.limit_rate as o
  where o.limit_id = (rule).id order by o.n desc limit 1), 0) end;

comment on function dibs._free_tokens is
'Return how many tokens a limit''s rate has, without taking any; 2147483647 without a rate, 0 while a claim has its
tat.';

create or replace function dibs._take_tokens(of_limit integer, want integer, at timestamptz) returns integer
language plpgsql volatile
as $$
declare
  v_rule dibs.limit_rule;
  v_tat timestamptz := dibs._take_tat(of_limit);
  v_got integer;
begin
  if v_tat is null then
    return 0;
  end if;
  select r.* into v_rule from dibs.limit_rule as r where r.id = of_limit;
  if v_rule.rate is null then
    -- The limit has lost its rate meanwhile.
    return want;
  end if;
  v_tat := dibs._bounded_tat(v_rule, v_tat, at);
  v_got := least(want, dibs._tokens_at(v_rule, v_tat, at));
  insert into dibs.limit_rate (limit_id, tat)
  values (of_limit, case when v_got = 0 then v_tat else greatest(v_tat, at) + dibs._token_time(v_rule.rate, v_got) end);
  return v_got;
end
$$;

comment on function dibs._take_tokens is 'Take up to `want` tokens of a limit''s rate. Return how many.';

create or replace function dibs._return_tokens(of_limit integer, tokens integer) returns void
language plpgsql volatile
as $$
begin
  -- The newest row is this transaction's own, written when it took the tokens, unless the rate was set again meanwhile.
  update dibs.limit_rate as p set tat = p.tat - dibs._token_time(r.rate, tokens)
  from dibs.limit_rule as r
  where r.id = of_limit and r.rate is not null and tokens > 0 and p.ctid = (
    select o.ctid from dibs.limit_rate as o
    where o.limit_id = of_limit order by o.n desc limit 1 for update skip locked);
end
$$;

comment on function dibs._return_tokens is 'Return tokens that this claim took for jobs which it did not start.';

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
'Delete the rows of a rate, except one that a claim has locked: its successor is deleted by repair_limits.';
