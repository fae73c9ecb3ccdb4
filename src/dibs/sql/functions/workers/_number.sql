-- Find a worker by its secret.

create or replace function dibs._worker_number(secret uuid) returns bigint
language plpgsql stable
as $$
declare
  v_id bigint := (select w.id from dibs.worker as w where w.secret = _worker_number.secret);
begin
  if v_id is null then
    raise exception using errcode = 'DI014', message = 'this worker is not registered',
      hint = 'register first, with dibs.register_worker, and pass the uuid it returns';
  end if;
  return v_id;
end
$$;

comment on function dibs._worker_number is 'The number of the worker with this secret; raise DI014 if there is none.';
