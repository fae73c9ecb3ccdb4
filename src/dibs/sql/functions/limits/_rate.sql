-- Rates: how many jobs may start in a second. Who spends from one holds its row, and writes another.

create or replace function dibs._take_tat(of_limit integer) returns timestamptz
language plpgsql volatile
as $$
declare
  v_tat timestamptz;
begin
  -- Only the newest row counts. If another claim has locked it, an older one that a change of the rate left must not take its place.
  delete from dibs.limit_rate as p
  where p.ctid = (
    select o.ctid from (select o.n from dibs.limit_rate as o where o.limit_id = of_limit order by o.n desc limit 1) as newest
    cross join lateral (
      select o.ctid from dibs.limit_rate as o where o.limit_id = of_limit and o.n = newest.n for update skip locked) as o)
  returning p.tat into v_tat;
  return v_tat;
end
$$;

comment on function dibs._take_tat is
'How far a rate is spent, to be written again by the one that asks; null if another claim is spending from it.';

create or replace function dibs._tokens_at(rule dibs.limit_rule, tat timestamptz, at timestamptz) returns integer
language sql immutable
return dibs._tokens((rule).rate, coalesce((rule).burst, dibs._default_burst((rule).rate)), tat, at);

comment on function dibs._tokens_at is 'How many jobs the rate of a limit lets start now; without a rate, any number.';

create or replace function dibs._bounded_tat(rule dibs.limit_rule, tat timestamptz, at timestamptz) returns timestamptz
language sql immutable
return least(tat, at + dibs._token_time((rule).rate, coalesce((rule).burst, dibs._default_burst((rule).rate))));

comment on function dibs._bounded_tat is
'How far a rate is spent, but no further than by one burst: a rate that was slower, or a clock that was ahead, may have left more.';

create or replace function dibs._free_tokens(rule dibs.limit_rule, at timestamptz) returns integer
language sql stable
return case when (rule).rate is null then 2147483647 else coalesce((
  select dibs._tokens_at(rule, o.tat, at) from dibs.limit_rate as o where o.limit_id = (rule).id order by o.n desc limit 1), 0) end;

comment on function dibs._free_tokens is 'The same, without spending any.';

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
    -- Its rate was taken away meanwhile, and nothing holds the jobs up.
    return want;
  end if;
  v_tat := dibs._bounded_tat(v_rule, v_tat, at);
  v_got := least(want, dibs._tokens_at(v_rule, v_tat, at));
  insert into dibs.limit_rate (limit_id, tat)
  values (of_limit, case when v_got = 0 then v_tat else greatest(v_tat, at) + dibs._token_time(v_rule.rate, v_got) end);
  return v_got;
end
$$;

comment on function dibs._take_tokens is 'Spend from a rate for up to `want` jobs that start now; how many it lets start.';

create or replace function dibs._return_tokens(of_limit integer, jobs integer) returns void
language plpgsql volatile
as $$
begin
  -- The newest row is this transaction's own: the claim has just spent from the rate. If the rate was set again meanwhile, it is not.
  update dibs.limit_rate as p set tat = p.tat - dibs._token_time(r.rate, jobs)
  from dibs.limit_rule as r
  where r.id = of_limit and r.rate is not null and jobs > 0 and p.ctid = (
    select o.ctid from dibs.limit_rate as o where o.limit_id = of_limit order by o.n desc limit 1 for update skip locked);
end
$$;

create or replace function dibs._start_rate(of_limit integer, at timestamptz) returns void
language plpgsql volatile
as $$
begin
  perform dibs._drop_rate(of_limit);
  insert into dibs.limit_rate (limit_id, tat) values (of_limit, at);
end
$$;

comment on function dibs._start_rate is 'Let a rate begin with nothing spent: one that was slower would hold it up.';

create or replace function dibs._drop_rate(of_limit integer) returns void
language plpgsql volatile
as $$
begin
  delete from dibs.limit_rate as p
  where p.ctid = any (array(select o.ctid from dibs.limit_rate as o where o.limit_id = of_limit for update skip locked));
end
$$;

comment on function dibs._drop_rate is
'Forget how far a rate is spent, without waiting for a claim that spends from it; what that writes is collected by repair_limits.';

comment on function dibs._return_tokens is 'Give back what a claim spent of a rate for jobs that it did not start.';
