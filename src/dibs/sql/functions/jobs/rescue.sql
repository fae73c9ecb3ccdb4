-- rescue: expired lease → ready or dead.

create or replace function dibs.rescue(max integer default 1000)
returns table (id uuid, state text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_ids uuid[];
  v_tokens uuid[];
  v_confined boolean := dibs._is_confined();
begin
  perform dibs._check_isolation('rescue');
  perform dibs._check_count('rescue', rescue.max);
  select array_agg(l.id order by l.id), array_agg(l.token order by l.id) into v_ids, v_tokens
  from (
    select l.id, l.token from dibs.lease as l where l.lease_until <= v_now
    order by l.id limit rescue.max for update skip locked
  ) as l;
  return query
  select case when not (v_confined and dibs._is_hidden_job(e.id)) then e.id end, e.state
  from dibs._end_runs('lost', v_ids, v_tokens, v_now,
    errors => array_fill('the lease ran out: its worker died, hung or lost the database'::text,
                         array[coalesce(cardinality(v_ids), 0)])) as e;
end
$$;

comment on function dibs.rescue is
'End up to `max` runs as lost whose leases were not renewed in time; an attempt is charged. Return each job and its
state now: ready, exhausted or cancelled. A role that is confined to other queues gets no id.';
