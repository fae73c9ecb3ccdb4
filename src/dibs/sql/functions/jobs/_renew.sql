-- Leases are renewed, and store how far their runs have come.

create or replace function dibs._check_progress(progress jsonb) returns void
language plpgsql stable
as $$
declare
  v_names constant text[] := '{done,of,message,data}'::text[];
  v_wrong text;
begin
  if progress is null then
    return;
  end if;
  if jsonb_typeof(progress) <> 'object' then
    v_wrong := 'a JSON ' || jsonb_typeof(progress);
  elsif dibs._json_bytes(progress) > dibs._constant('progress_bound') then
    v_wrong := format(
      '%s bytes, and at most %s are taken', dibs._json_bytes(progress), dibs._constant('progress_bound'));
  elsif progress - v_names <> '{}' then
    v_wrong := 'something named ' || quote_literal((select k from jsonb_object_keys(progress - v_names) as k limit 1));
  elsif jsonb_typeof(progress -> 'done') <> 'number' or jsonb_typeof(progress -> 'of') <> 'number' then
    v_wrong := 'a "done" or "of" that is no number';
  elsif (progress ->> 'done')::numeric < 0 or (progress ->> 'of')::numeric <= 0
    or (progress ->> 'done')::numeric > (progress ->> 'of')::numeric then
    v_wrong := format('%s done of %s', progress ->> 'done', coalesce(progress ->> 'of', 'unknown'));
  elsif jsonb_typeof(progress -> 'message') <> 'string' or length(progress ->> 'message') > 1000 then
    v_wrong := 'a message that is no text, or longer than 1000 characters';
  elsif jsonb_typeof(progress -> 'data') <> 'object' then
    v_wrong := 'data that is no object';
  end if;
  if v_wrong is not null then
    raise exception using errcode = 'DI010', message = 'progress cannot be ' || v_wrong,
      hint = 'such as: {"done": 3, "of": 10, "message": "resizing", "data": {"file": "a.png"}}; all are optional';
  end if;
end
$$;

comment on function dibs._check_progress is
'Raise DI010 for progress that is not null and not of the form that the verb `progress` takes.';

create or replace function dibs._renew_leases(
  verb text, ids uuid[], tokens uuid[], progress jsonb[], renews boolean, lease interval default null)
returns table (item integer, id uuid, answer text, lease_until timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_now timestamptz := dibs.now();
  v_renewed record;
begin
  perform dibs._check_isolation(verb);
  perform dibs._check_batch(verb, ids, tokens, cardinality(progress));
  if progress is not null then
    perform dibs._check_progress(p) from unnest(progress) as p;
  end if;
  with asked as materialized (
    select * from unnest(ids, tokens, progress) as k (id, token, progress) order by k.id
  ), unlocked as materialized (
    -- Skip locked leases: one handler's open transaction must not stop the heartbeats of all the others.
    select l.id, a.progress from asked as a
    cross join lateral (
      select l.id from dibs.lease as l where l.id = a.id and l.token = a.token for update skip locked) as l
  ), renewed as (
    update dibs.lease as l
    set progress = case when renews then coalesce(u.progress, l.progress) else u.progress end,
      lease_until = case when renews then v_now + coalesce(_renew_leases.lease, l.own_lease,
          dibs._lease_length(q.lease, q.lease_growth, q.lease_cap, l.charged)) else l.lease_until end
    from unlocked as u, dibs.queue as q
    where l.id between u.id and u.id and q.id = l.queue_id
    returning l.id, l.cancel
  )
  select array_agg(n.id) as ids, array_agg(n.id) filter (where n.cancel is not null) as to_cancel
  into v_renewed from renewed as n;
  -- Look at the leases again: one that the token holds, but that was not renewed, was locked above (`busy`).
  return query
  select k.n::integer, k.id,
    case
      when l.id is null then 'lost'
      when k.id = any (v_renewed.to_cancel) then 'cancel'
      when k.id = any (v_renewed.ids) then 'ok'
      else 'busy'
    end,
    l.lease_until
  from unnest(ids, tokens) with ordinality as k (id, token, n)
  left join lateral (
    select l.id, l.lease_until from dibs.lease as l where l.id = k.id and l.token = k.token offset 0) as l on true
  order by k.n;
end
$$;

comment on function dibs._renew_leases is
'Do `extend_many` if it `renews`, otherwise `progress_many`. Both store the progress of runs: for `extend`, null leaves
the stored progress as it is; for `progress`, null deletes it. `extend` also renews the leases, for `lease` (null: as
the policy of the job or the queue says). Return the answers of the verb.';
