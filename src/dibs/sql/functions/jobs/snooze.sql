-- snooze: lease → ready, without charging an attempt.

create or replace function dibs.snooze_many(ids uuid[], tokens uuid[], delays interval[])
returns table (item integer, id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_ended uuid[];
  v_tokens uuid[];
begin
  perform dibs._check_isolation('snooze');
  perform dibs._check_batch('snooze', ids, tokens, cardinality(delays));
  if array_position(coalesce(delays, '{null}'), null) is not null then
    raise exception using errcode = 'DI010', message = 'snooze needs a delay', hint = 'such as interval ''5 minutes''';
  end if;
  select array_agg(p.id), array_agg(p.token) into v_ended, v_tokens
  from dibs._put_back('snoozed', ids, tokens, null, dibs._check_delays('snooze', delays), null, dibs.now()) as p;
  return query
  select a.item, a.id, a.answer from dibs._answer_batch(ids, tokens, v_ended, v_tokens, '{snoozed,cancelled}') as a;
end
$$;

comment on function dibs.snooze_many is
'Put many jobs back to wait for their `delays`, without charging an attempt. A job whose cancel was asked for ends as
cancelled instead. Answers `ok`, `already` or `lost` for each item.';

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
'Put a job back to wait for `delay`, without charging an attempt. Answers `ok` or `already`; raises DI001 when
the token does not hold it.';
