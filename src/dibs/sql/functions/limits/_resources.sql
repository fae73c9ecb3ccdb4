-- The resources that a job names, checked when it is enqueued.

create or replace function dibs._whole_units(resources jsonb) returns jsonb
language plpgsql immutable
as $$
begin
  return (select jsonb_object_agg(r.key, (r.value)::integer) from jsonb_each(resources) as r);
end
$$;

comment on function dibs._whole_units is 'Return resources with their units written as integers: 1.0 and 1e0 become 1.';

create or replace function dibs._check_resources(jobs jsonb) returns void
language plpgsql immutable
as $$
declare
  v_wrong text;
begin
  -- A job without resources leaves the key out, or gives null.
  if exists (
    select from jsonb_array_elements(jobs) as e (job)
    where jsonb_typeof(e.job -> 'resources') not in ('object', 'null')) then
    v_wrong := 'what was given';
  else
    select min(quote_literal(r.key)) into v_wrong
    from jsonb_array_elements(jobs) as e (job)
    cross join lateral jsonb_each(nullif(e.job -> 'resources', 'null')) as r
    where length(r.key) not between 1 and 200
      or case when jsonb_typeof(r.value) = 'number'
        then (r.value)::numeric not between 1 and 1000000 or (r.value)::numeric % 1 <> 0 else true end;
  end if;
  if v_wrong is not null then
    raise exception using errcode = 'DI010',
      message = format(
        'a job needs whole units of a resource, from 1 to 1000000, by a name of 1 to 200 characters; %s is not that',
        v_wrong),
      hint = 'give resources as {"gpu": 1, "licence": 2}';
  end if;
  if exists (
    select from jsonb_array_elements(jobs) as e (job)
    where jsonb_typeof(e.job -> 'resources') = 'object'
      and (select count(*) from jsonb_object_keys(e.job -> 'resources')) > dibs._constant('resources_bound')) then
    raise exception using errcode = 'DI010',
      message = format('a job names at most %s resources', dibs._constant('resources_bound'));
  end if;
end
$$;

comment on function dibs._check_resources is
'Raise DI010 if a job''s resources are not an object of at most 100 names, of 1 to 200 characters each, with whole units
from 1 to 1,000,000. The error shows one wrong name.';
