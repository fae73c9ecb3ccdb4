-- The steps of `maintain`, and the lock that lets one round of each verb run at a time.

create or replace function dibs._is_alone(verb text) returns boolean
language sql volatile
return pg_try_advisory_xact_lock(20003, array_position('{maintain,make_days,prune,roll_up}', verb) - 1);

comment on function dibs._is_alone is
'Whether no other transaction is in a round of this verb (maintain, make_days, prune, roll_up); none will be until ours
ends.';

create or replace function dibs._upkeep_steps() returns table (n integer, chore text, step text)
language sql immutable
begin atomic
  values
    (1, 'rescue', 'rescued'),
    (2, 'expire', 'expired'),
    (3, 'schedule', 'schedules fired'),
    (4, 'roll_up', 'runs counted'),
    (5, 'mend', 'groups mended'),
    (6, 'mend', 'limits mended'),
    (7, 'forget', 'hints, workers and keys forgotten'),
    (8, 'make_days', 'days made'),
    (9, 'prune', 'days dropped');
end;

comment on function dibs._upkeep_steps is
'The steps of `maintain` in order, and the chore of `dibs maintain` that each belongs to. Days come last, because their
locks last until the transaction ends.';

create or replace function dibs._do_step(step text) returns bigint
language plpgsql volatile
as $$
declare
  c_chunk constant integer := 10000;
  v_count bigint;
begin
  case step
    when 'rescued' then
      v_count := (select count(*) from dibs.rescue(c_chunk));
    when 'expired' then
      v_count := (
        with recursive walk as (
          select e.expired, e.next from dibs.expire(c_chunk) as e
          union all
          select e.expired, e.next from walk as w cross join lateral dibs.expire(c_chunk, w.next) as e
          where w.next is not null
        )
        select sum(w.expired) from walk as w);
    when 'schedules fired' then
      v_count := (select r.fired from dibs.run_schedules(c_chunk) as r);
    when 'runs counted' then
      v_count := (select r.counted from dibs.roll_up() as r);
    when 'groups mended' then
      v_count := (select dibs.repair_groups() where exists (select from dibs.queue as q where q.has_groups));
    when 'limits mended' then
      v_count := (select dibs.repair_limits() where exists (select from dibs.limit_rule));
    when 'hints, workers and keys forgotten' then
      v_count := dibs.forget();
    when 'days made' then
      v_count := (select count(*) from dibs.make_days() as d where d.outcome = 'made');
    when 'days dropped' then
      v_count := (select count(*) from dibs.prune(c_chunk) as p where p.outcome = 'dropped');
  end case;
  return v_count;
end
$$;

comment on function dibs._do_step is
'Do a step of `maintain`. Returns how many rows, runs or days it found; null where there are no groups or no limits.';
