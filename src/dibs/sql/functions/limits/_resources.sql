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
  v_flaw text;
begin
  -- Find the first wrong entry of a job. The LEFT JOIN keeps a value that is not an object, with a null key.
  select min(case when r.key is null then 'what was given' else quote_literal(r.key) end) into v_flaw
  from jsonb_array_elements(jobs) as e (job)
  cross join lateral (select e.job -> 'resources' as given) as j
  left join lateral jsonb_each(case when jsonb_typeof(j.given) = 'object' then j.given end) as r on true
  where jsonb_typeof(j.given) <> 'null'
    and (jsonb_typeof(j.given) <> 'object' or length(r.key) not between 1 and 200 or jsonb_typeof(r.value) <> 'number'
      or case when jsonb_typeof(r.value) = 'number' then
        (r.value)::numeric not between 1 and 1000000 or (r.value)::numeric % 1 <> 0 end);
  if v_flaw is not null then
    raise exception using errcode = 'DI010',
      message = format('a job needs whole units of a resource, from 1 to 1000000; %s is not that', v_flaw),
      hint = 'give resources as {"gpu": 1, "licence": 2}';
  end if;
  if exists (
    select from jsonb_array_elements(jobs) as e (job)
    where jsonb_typeof(e.job -> 'resources') = 'object'
      and (select count(*) from jsonb_object_keys(e.job -> 'resources')) > dibs._bound('resources')) then
    raise exception using errcode = 'DI010',
      message = format('a job names at most %s resources', dibs._bound('resources'));
  end if;
end
$$;

comment on function dibs._check_resources is
'Raise DI010 if a job''s resources are not an object of at most 100 names, each with whole units from 1 to 1,000,000.';
