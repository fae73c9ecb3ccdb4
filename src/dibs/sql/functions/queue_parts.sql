-- What the verbs on queues share. Nobody but the owner calls this.

create or replace function dibs.queue_number(name text) returns integer
language plpgsql stable
as $$
declare
  v_id integer := (select q.id from dibs.queue as q where q.name = queue_number.name);
begin
  if dibs.is_guarded() then
    perform dibs.check_queues(array[name]);
  end if;
  if v_id is null then
    raise exception using errcode = 'DI011', message = format('there is no queue %L', name),
      hint = coalesce('did you mean ' || quote_literal(dibs.nearest(name, array(select q.name from dibs.queue as q))) || '? ', '')
        || 'a queue exists from its first job, or from dibs.set_queue';
  end if;
  return v_id;
end
$$;

comment on function dibs.queue_number is 'The number of a queue by its name; raises DI011 when there is none.';
