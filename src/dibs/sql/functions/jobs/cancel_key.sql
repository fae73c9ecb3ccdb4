-- cancel_key: cancel by dedup key instead of by id.

create or replace function dibs.cancel_key(queue text, dedup_key text, reason text default 'cancelled by request')
returns table (id uuid, answer text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_hash bytea := dibs._fingerprint_of(
    dibs._shown_queue(dibs._queue_number(cancel_key.queue)), cancel_key.dedup_key);
  v_id uuid;
begin
  perform dibs._check_isolation('cancel_key');
  if v_hash is null then
    raise exception using errcode = 'DI010', message = 'cancel_key needs a dedup key, not null';
  end if;
  select f.id into v_id from dibs.fingerprint as f where f.hash = v_hash and dibs._is_key_live(f, v_now);
  if found then
    return query select c.id, c.answer from dibs.cancel_many(array[v_id], cancel_key.reason) as c;
  end if;
end
$$;

comment on function dibs.cancel_key is
'Cancel the job that holds a dedup key in a queue. Returns its id and `cancelled` (it was waiting), `requested` (it
runs; its holder is told by `extend`) or `ended` (only its key was still held, for a time); no row when no job holds the
key.';
