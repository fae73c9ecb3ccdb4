-- The arguments of `statistics`, and the rows that it sums up.

create or replace function dibs._check_period(since interval, every interval) returns void
language plpgsql stable
as $$
begin
  if since is null or since not between interval '1 minute' and interval '10 years' then
    raise exception using errcode = 'DI010',
      message = format('statistics go back from 1 minute to 10 years, not %s', coalesce(since::text, 'null'));
  end if;
  if every < interval '1 minute' or every > since or extract(epoch from every) % 60 <> 0
    or extract(month from every) <> 0 or extract(year from every) <> 0 then
    raise exception using errcode = 'DI010',
      message = format('statistics have periods of a minute or longer, within the time asked for, not of %s', every),
      hint = 'give whole minutes, hours or days, such as every => ''5 minutes''';
  end if;
end
$$;

comment on function dibs._check_period is
'Refuse a time that is too short or too long; refuse a period that is longer than the time, is not of whole minutes, or
has months, which differ in length. A null `every` passes.';

create or replace function dibs._check_grouping(by text[]) returns void
language plpgsql immutable
as $$
declare
  c_known constant text[] := array['queue', 'kind'];
  c_hint constant text := 'the choices are queue and kind: one of them, both, or none to sum up everything';
  v_word text;
  v_count bigint;
begin
  if by is null then
    raise exception using errcode = 'DI010', message = '"by" is a list of words, not null', hint = c_hint;
  end if;
  for v_word, v_count in select w, count(*) from unnest(by) as w group by w order by w loop
    if v_word is null or v_word <> all (c_known) then
      perform dibs._refuse_unknown('DI010',
        format('statistics cannot be grouped by %s', coalesce(quote_literal(v_word), 'null')),
        coalesce(v_word, ''), c_known, c_hint);
    elsif v_count > 1 then
      raise exception using errcode = 'DI010', message = format('"by" names %s more than once', v_word), hint = c_hint;
    end if;
  end loop;
end
$$;

comment on function dibs._check_grouping is
'Refuse a `by` that is null, or has a word twice or a word other than queue and kind.';

create or replace function dibs._find_stat_rows(
  queue text, kind text, since interval, every interval, by_queue boolean, by_kind boolean)
returns setof dibs.stat
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_queue_id constant integer := case
    when _find_stat_rows.queue is not null then dibs._queue_number(_find_stat_rows.queue) end;
  v_confined_to constant integer[] := dibs.confined_to();
  v_grain constant text := case
    when every is null then
      case when since <= (select o.stat_minutes from dibs.setting as o) then 'minute' else 'hour' end
    when extract(epoch from every) % 3600 = 0 then 'hour'
    else 'minute' end;
  v_from constant timestamptz := date_bin(
    coalesce(every, ('1 ' || v_grain)::interval), dibs.now() - since, timestamptz '2000-01-01 00:00Z');
begin
  return query
  select case when by_queue then s.queue_id end, case when by_kind then s.kind end, s.grain,
    date_bin(every, s.at, timestamptz '2000-01-01 00:00Z'),
    s.succeeded, s.failed, s.lost, s.snoozed, s.released, s.cancelled, s.expired, s.runs, s.run_us, s.run_max_us,
    s.waits, s.wait_us, s.wait_max_us, s.last_at, s.last_us, s.run_counts, s.wait_counts
  from dibs.stat as s
  where s.grain = v_grain and s.at >= v_from and (v_confined_to is null or s.queue_id = any (v_confined_to))
    and (v_queue_id is null or s.queue_id = v_queue_id)
    and (_find_stat_rows.kind is null or s.kind = _find_stat_rows.kind);
end
$$;

comment on function dibs._find_stat_rows is
'Return rows of dibs.stat (minutes or hours) of the last `since`, with `at` set to the start of the period that the row
counts for (null without periods), and with null for a queue or kind that is not grouped by. With periods of whole hours
it reads hours, since they are few; with other ones minutes; without periods minutes if they are kept for that long, and
otherwise hours.';
