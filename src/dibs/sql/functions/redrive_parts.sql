-- What redrive is made of. Nobody but the owner calls this.

create or replace function dibs.check_redrive(
  ids uuid[], queue text, state text, max integer, rate double precision, delay interval)
returns void
language plpgsql stable
as $$
declare
  v_states constant text[] := '{failed,exhausted,expired,cancelled}'::text[];
begin
  if queue is not null then
    perform dibs.queue_number(queue);
  end if;
  if state <> all (v_states) then
    raise exception using errcode = 'DI010', message = format('a dead job is never %L', state),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(state, v_states)) || '? ', '')
        || 'the dead states are ' || array_to_string(v_states, ', ');
  end if;
  perform dibs.check_count('redrive', max);
  if rate <= 0 or max / rate > 31536000 then
    raise exception using errcode = 'DI010',
      message = format('a rate of %s jobs a second makes no sense for %s jobs', rate, max),
      hint = 'give a rate above 0 at which they are all due within a year';
  end if;
  perform dibs.bounded('redrive', delay);
end
$$;

comment on function dibs.check_redrive is 'Refuse a redrive that makes no sense, with a sentence that says why.';

create or replace function dibs.retake_fingerprints(ids uuid[], at timestamptz) returns void
language sql volatile
begin atomic
  -- A window counts from the enqueue, so a job that has no more than that takes nothing again and is stopped by nobody.
  select dibs.take_fingerprint(d.fingerprint, d.id, d.dedup_scope, null, false, at)
  from (
    select d.fingerprint, d.id, j.dedup_scope from dibs.dead as d join dibs.job as j on j.id = d.id
    where d.id = any (ids) and d.fingerprint is not null and j.dedup_scope is distinct from 'window'
    order by d.fingerprint, d.id offset 0
  ) as d;
end;

comment on function dibs.retake_fingerprints is 'Take the dedup keys of dead jobs again, where no other job has them now.';
