-- Statistics of a period, for `statistics`.

create or replace function dibs._check_period(since interval, every interval) returns void
language plpgsql stable
as $$
begin
  if since is null or since not between interval '1 minute' and interval '10 years' then
    raise exception using errcode = 'DI010',
      message = format('statistics go back from 1 minute to 10 years, not %s', coalesce(since::text, 'null'));
  end if;
  if every < interval '1 minute' or every > since
    or extract(month from every) <> 0 or extract(year from every) <> 0 then
    raise exception using errcode = 'DI010',
      message = format('statistics are told for each minute or longer, within the time asked for, not each %s', every),
      hint = 'give minutes, hours or days, such as every => ''5 minutes''';
  end if;
end
$$;

comment on function dibs._check_period is
'Refuse a period that is too short or too long, or that cannot be divided into such parts.';

create or replace function dibs._sum_stats(queue_id integer, kind text, since interval, every interval)
returns setof dibs.stat
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_grain text := case when since <= (select o.stat_minutes from dibs.setting as o) then 'minute' else 'hour' end;
  -- A minute or an hour that has partly passed counts whole.
  v_from timestamptz := dibs.now() - since - ('1 ' || v_grain)::interval;
  v_mine integer[] := dibs.confined_to();
begin
  return query
  select s.queue_id, s.kind, v_grain, date_bin(every, s.at, timestamptz '2000-01-01 00:00Z'),
    sum(s.succeeded)::bigint, sum(s.failed)::bigint, sum(s.lost)::bigint, sum(s.snoozed)::bigint,
    sum(s.released)::bigint, sum(s.cancelled)::bigint, sum(s.expired)::bigint,
    sum(s.runs)::bigint, sum(s.run_us)::bigint, max(s.run_max_us),
    sum(s.waits)::bigint, sum(s.wait_us)::bigint, max(s.wait_max_us),
    max(s.last_at), null::bigint, dibs._sum_bars(s.run_counts), dibs._sum_bars(s.wait_counts)
  from dibs.stat as s
  where s.grain = v_grain and s.at > v_from and (v_mine is null or s.queue_id = any (v_mine))
    and (_sum_stats.queue_id is null or s.queue_id = _sum_stats.queue_id)
    and (_sum_stats.kind is null or s.kind = _sum_stats.kind)
  group by 1, 2, 3, 4;
end
$$;

comment on function dibs._sum_stats is
'The statistics of a period, summed up by queue, kind and slot of length `every`; without one, `at` is null.';
