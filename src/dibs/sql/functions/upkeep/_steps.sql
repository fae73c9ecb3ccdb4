-- One step of each chore, which ends soon however much there is to do.

create or replace function dibs._expire_batches(place uuid, out expired bigint, out next uuid)
language plpgsql volatile
as $$
declare
  v_batch record;
begin
  expired := 0;
  next := coalesce(place, dibs._nil_id());
  for n in 1 .. 50 loop
    v_batch := dibs._expire_batch(10000, next);
    expired := expired + v_batch.expired;
    next := v_batch.next;
    exit when next is null;
  end loop;
end
$$;

comment on function dibs._expire_batches is
'Expire waiting jobs whose time is over, among the next 500,000 from `place` on (null: from the first). `next` is where
to go on, null after the last.';

create or replace function dibs._run_schedule_round(
  out counts jsonb, out more boolean, out wait interval, out cron jsonb)
language sql volatile
begin atomic
  select jsonb_build_object('fired', r.fired, 'skipped', r.skipped, 'missed', r.missed, 'troubled', r.troubled), r.more,
    case when not r.known then interval '5 seconds' when r.more then interval '0'
      when jsonb_array_length(r.cron) > 0 then interval '0.1 seconds'
      when r.wait is null then interval '1 second'
      else least(greatest(r.wait, interval '0.01 seconds'), interval '1 second') end,
    r.cron
  from dibs.run_schedules(100) as r;
end;

comment on function dibs._run_schedule_round is
'Run schedules once. `wait` is the time until the next slot, but at most a second, because the end of a run may also
make a schedule due; 5 seconds if there is no schedule. `cron` are expressions that only the client can read.';

create or replace function dibs._run_chore_step(
  chore text, place uuid, out counts jsonb, out next uuid, out more boolean, out wait interval, out cron jsonb)
language plpgsql volatile
as $$
declare
  v_count bigint;
begin
  case chore
    when 'rescue' then
      select jsonb_object_agg(r.state, r.jobs), sum(r.jobs) >= 1000 into counts, more
      from (
        select r.state, count(*) as jobs from dibs.rescue(1000) as r group by 1
        union all select 'unparked', dibs._unpark_due(1000)) as r
      where r.jobs > 0;
    when 'schedule' then
      select r.counts, r.more, r.wait, r.cron into counts, more, wait, cron from dibs._run_schedule_round() as r;
    when 'expire' then
      select e.expired, e.next into v_count, next from dibs._expire_batches(place) as e;
      counts := jsonb_build_object('expired', v_count);
      more := next is not null;
    when 'roll_up' then
      select jsonb_build_object('counted', r.counted), r.more into counts, more from dibs.roll_up() as r;
    when 'repair_groups' then
      v_count := (select dibs.repair_groups() where exists (select from dibs.queue as q where q.has_groups));
      counts := jsonb_build_object('repaired', coalesce(v_count, 0));
    when 'repair_limits' then
      v_count := (select dibs.repair_limits()
        where exists (select from dibs.limit_rule) or exists (select from dibs.blocked as b where b.kind is null));
      counts := jsonb_build_object('repaired', coalesce(v_count, 0));
    when 'forget' then
      counts := jsonb_build_object('forgotten', dibs.forget());
    when 'prune' then
      select jsonb_object_agg(p.outcome, p.rows), bool_or(p.outcome = 'dropped' or p.is_full),
        case when bool_or(p.outcome = 'dropped' or p.is_full) then interval '0.1 seconds'
          when bool_or(p.outcome = 'locked') then interval '10 seconds' end
      into counts, more, wait
      from (
        select p.outcome, sum(coalesce(p.trimmed, 1)) as rows,
          bool_or(p.trimmed >= 1000 or p.outcome = 'looked') as is_full
        from dibs.prune(1000) as p group by 1) as p;
      -- prune keeps its place in the row of the chore, because it can also be called directly.
      next := (select c.place from dibs.chore as c where c.name = 'prune' order by c.done_at desc limit 1);
      more := more or next is not null;
    when 'make_days' then
      select jsonb_object_agg(d.outcome, d.days),
        case when bool_or(d.outcome in ('made', 'locked')) then interval '30 seconds' end
      into counts, wait
      from (
        select d.outcome, count(*) as days from dibs.make_days() as d where d.outcome <> 'exists' group by 1) as d;
  end case;
end
$$;

comment on function dibs._run_chore_step is
'Do one step of a chore. `place` and `next` say where this step begins and where the next one does, null for the start;
`more` is true if there is more to do now; `wait` is null for the usual pause; `cron` are expressions that only the
client can read.';
