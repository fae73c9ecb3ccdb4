-- Insert rows into the audit.

create or replace function dibs._audited_filter(filter jsonb) returns jsonb
language sql immutable parallel safe
return case when jsonb_typeof(filter -> 'ids') is distinct from 'array' then filter
  when jsonb_array_length(filter -> 'ids') > 100
  then jsonb_set(filter, '{ids}', to_jsonb(jsonb_array_length(filter -> 'ids'))) else filter end;

comment on function dibs._audited_filter is 'Shorten a filter for the audit: more than 100 ids become their number.';

create or replace function dibs._actor() returns text
language sql stable
return nullif(left(current_setting('dibs.actor', true), dibs._constant('name_bound')::integer), '');

comment on function dibs._actor is
'Return the person for whom the session acts, from its setting dibs.actor; null if it names none.';

create or replace function dibs._audit(
  verb text, queue text default null, filter jsonb default null, jobs bigint default null, detail jsonb default null,
  continues bigint default null) returns bigint
language sql volatile
begin atomic
  insert into dibs.audit (id, operation, at, role, actor, verb, queue, filter, jobs, detail)
  select n.id, coalesce(continues, n.id), dibs.now(), session_user, dibs._actor(), _audit.verb,
    _audit.queue,
    case when continues is null then dibs._audited_filter(_audit.filter) end, _audit.jobs,
    case when continues is null then nullif(jsonb_strip_nulls(_audit.detail), '{}') end
  from (select nextval('dibs.audit_id_seq') as id) as n
  returning operation;
end;

comment on function dibs._audit is
'Insert a row into the audit, for a change or for the next step of one. `continues` is the operation that the step
belongs to; null begins a new one. Return the number of the operation, which is the id of its first row.';

create or replace function dibs._audit_if_acting(
  verb text, queue text default null, jobs bigint default null, detail jsonb default null) returns void
language plpgsql volatile
as $$
begin
  if dibs._actor() is not null then
    perform dibs._audit(verb, queue, jobs => jobs, detail => detail);
  end if;
end
$$;

comment on function dibs._audit_if_acting is
'Audit a change by a verb that applications call as well as people: only if the session names an actor.';

create or replace function dibs._check_continues(verb text, continues bigint) returns void
language plpgsql stable
as $$
begin
  if continues is not null and not exists (
    select from dibs.audit as a
    where a.id = continues and a.operation = a.id and a.verb = _check_continues.verb and a.role = session_user) then
    raise exception using errcode = 'DI010',
      message = format('there is no operation %s of %s that this could continue', continues, verb),
      hint = 'give the operation that the first step answered with, or none';
  end if;
end
$$;

comment on function dibs._check_continues is
'Raise DI010 unless `continues` is null, or an operation that the same verb began for the same login.';

create or replace function dibs._audit_schedule(verb text, name text, detail jsonb default '{}') returns bigint
language plpgsql volatile
as $$
begin
  return dibs._audit(verb, (select s.job ->> 'queue' from dibs.schedule as s where s.name = _audit_schedule.name),
    detail => detail || jsonb_build_object('schedule', name));
end
$$;

comment on function dibs._audit_schedule is
'Audit a change of a schedule under the queue of its jobs. Return the number of the operation.';
