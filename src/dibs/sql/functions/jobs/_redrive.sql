-- What redrive accepts.

create or replace function dibs._check_redrive(
  ids uuid[], queue text, state text, max integer, rate double precision, delay interval)
returns void
language plpgsql stable
as $$
declare
  v_states constant text[] := '{failed,exhausted,expired,cancelled}'::text[];
begin
  if queue is not null then
    perform dibs._queue_number(queue);
  end if;
  if state <> all (v_states) then
    perform dibs._refuse_unknown('DI010', format('a dead job is never %L', state), state, v_states,
      'the dead states are ' || array_to_string(v_states, ', '));
  end if;
  perform dibs._check_count('redrive', max);
  if rate <= 0 or max / rate > 31536000 then
    raise exception using errcode = 'DI010',
      message = format('a rate of %s jobs a second makes no sense for %s jobs', rate, max),
      hint = 'give a rate above 0 at which they are all due within a year';
  end if;
  perform dibs._check_delay('redrive', delay);
end
$$;

comment on function dibs._check_redrive is 'Refuse a redrive that makes no sense, with a sentence that says why.';
