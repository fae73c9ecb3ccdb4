-- The counts that `statistics` sums up.

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

create or replace function dibs._check_grouping(by text[]) returns void
language plpgsql immutable
as $$
declare
  c_known constant text[] := array['queue', 'kind'];
  c_hint constant text := 'the choices are queue and kind: one of them, both, or none to sum up everything';
  v_word text;
  v_times bigint;
begin
  if by is null then
    raise exception using errcode = 'DI010', message = '"by" is a list of words, not null', hint = c_hint;
  end if;
  for v_word, v_times in select w, count(*) from unnest(by) as w group by w order by w loop
    if v_word is null or v_word <> all (c_known) then
      perform dibs._refuse_unknown('DI010', format('statistics are not told by %s', coalesce(quote_literal(v_word), 'null')),
        coalesce(v_word, ''), c_known, c_hint);
    elsif v_times > 1 then
      raise exception using errcode = 'DI010', message = format('"by" names %s more than once', v_word), hint = c_hint;
    end if;
  end loop;
end
$$;

comment on function dibs._check_grouping is 'Refuse what statistics cannot be grouped by.';

create or replace function dibs._find_stat_rows(
  queue text, kind text, since interval, every interval, by_queue boolean, by_kind boolean)
returns setof dibs.stat
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_queue constant integer := case when _find_stat_rows.queue is not null then dibs._queue_number(_find_stat_rows.queue) end;
  v_mine constant integer[] := dibs.confined_to();
  v_grain constant text := case
    when every is null then
      case when since <= (select o.stat_minutes from dibs.setting as o) then 'minute' else 'hour' end
    when every < interval '1 hour' then 'minute'
    else 'hour' end;
  v_from constant timestamptz := date_bin(
    coalesce(every, ('1 ' || v_grain)::interval), dibs.now() - since, timestamptz '2000-01-01 00:00Z');
begin
  return query
  select case when by_queue then s.queue_id end, case when by_kind then s.kind end, s.grain,
    date_bin(every, s.at, timestamptz '2000-01-01 00:00Z'),
    s.succeeded, s.failed, s.lost, s.snoozed, s.released, s.cancelled, s.expired, s.runs, s.run_us, s.run_max_us,
    s.waits, s.wait_us, s.wait_max_us, s.last_at, s.last_us, s.run_counts, s.wait_counts
  from dibs.stat as s
  where s.grain = v_grain and s.at >= v_from and (v_mine is null or s.queue_id = any (v_mine))
    and (v_queue is null or s.queue_id = v_queue)
    and (_find_stat_rows.kind is null or s.kind = _find_stat_rows.kind);
end
$$;

comment on function dibs._find_stat_rows is
'The counts of minutes or hours that statistics of the last `since` are made of, each with the queue, the kind and the period it counts
for. With periods of an hour or more, hours are read, since they are few; with shorter ones minutes, as far as those are kept; without
periods, minutes if they are kept for that long, and else hours. The minute, hour or period in which `since` begins counts whole.';
