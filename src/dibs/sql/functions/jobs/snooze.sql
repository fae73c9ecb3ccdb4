-- snooze: lease → ready, without charging an attempt.

create or replace function dibs.snooze_many(ids uuid[], tokens uuid[], delays interval[])
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if array_position(coalesce(delays, '{null}'), null) is not null then
    raise exception using errcode = 'DI010', message = 'snooze needs a delay', hint = 'such as interval ''5 minutes''';
  end if;
  return query select r.* from dibs._end_uncharged_runs('snooze', 'snoozed', ids, tokens, delays) as r;
end
$$;

comment on function dibs.snooze_many is
'End many runs without charging an attempt; their jobs wait for their `delays`. A job whose cancellation was requested
ends as cancelled instead. Return `ok`, `already` or `lost` for each item.';

create or replace function dibs.snooze(id uuid, token uuid, delay interval)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return dibs._require_lease('snooze', snooze.id, (
    select r.answer from dibs.snooze_many(array[snooze.id], array[token], array[delay]) as r));
end
$$;

comment on function dibs.snooze is
'End a run without charging an attempt; its job waits for `delay`. Return `ok` or `already`; raise DI001 if the token
does not hold the job.';
