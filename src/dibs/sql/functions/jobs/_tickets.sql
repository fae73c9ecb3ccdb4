-- Waiting tickets are taken out of ready and blocked.

create or replace function dibs._withdraw_tickets(ids uuid[], at timestamptz, stays boolean default false, queues integer[] default null)
returns dibs.waiting_ticket[]
language plpgsql volatile
as $$
declare
  v_gone dibs.waiting_ticket[];
  v_group record;
begin
  with unready as (
    delete from dibs.ready as r using (
      select r.id from unnest(ids) as k (id)
      cross join lateral (
        select r.id from dibs.ready as r where r.id = k.id and (queues is null or r.queue_id = any (queues)) for update) as r
    ) as h where r.id between h.id and h.id returning r.*
  ), unblocked as (
    delete from dibs.blocked as b using (
      select b.id from unnest(ids) as k (id)
      cross join lateral (
        select b.id from dibs.blocked as b where b.id = k.id and (queues is null or b.queue_id = any (queues)) for update) as b
    ) as h where b.id between h.id and h.id returning b.*
  ), gone as (
    select r.id, r.due_at, r.expire_at, r.queue_id, r.run, r.charged, r.losses, r.priority, r.own_lease, r.history,
      r.fingerprint, r.group_key, r.cost, dibs.group_hold 'none' as group_hold
    from unready as r
    union all
    select b.id, b.due_at, b.expire_at, b.queue_id, b.run, b.charged, b.losses, b.priority, b.own_lease, b.history,
      b.fingerprint, b.group_key, b.cost, b.group_hold
    from unblocked as b
  )
  select array_agg(g::dibs.waiting_ticket) into v_gone
  from (select row(g.*)::dibs.waiting_ticket as g from gone as g) as g;
  select array_agg(g.group_key) as group_keys, array_agg(g.queue_id) as queues, array_agg(g.group_hold) as group_holds, array_agg(g.id) as ids
  into v_group from unnest(v_gone) as g where g.group_key is not null;
  if v_group.group_keys is not null then
    if stays then
      perform dibs._end_group_runs(v_group.group_keys, v_group.group_holds, v_group.queues, v_group.ids, at);
    else
      perform dibs._wake_groups(v_group.group_keys, v_group.queues, v_group.group_holds, at);
    end if;
  end if;
  return v_gone;
end
$$;

comment on function dibs._withdraw_tickets is
'Take the tickets of those of the jobs that wait, and give back what they hold of their group''s turns; `ids` must be sorted. `stays` says
that they will wait in the same group again, which keeps its order. With `queues` only those that wait there.';

create or replace function dibs._return_tickets(tickets dibs.waiting_ticket[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_put bigint;
begin
  insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
    fingerprint, group_key, cost)
  select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority,
    coalesce((select q.ring from dibs.queue as q where q.id = t.queue_id), true) and t.id in (
      select distinct on (n.queue_id) n.id from unnest(tickets) as n order by n.queue_id, n.due_at, n.id),
    t.own_lease, t.history, t.fingerprint, t.group_key, t.cost
  from unnest(tickets) as t;
  get diagnostics v_put = row_count;
  perform dibs._check_moved(cardinality(tickets), v_put);
  perform dibs._add_pointers(array(select t.id from unnest(tickets) as t), at);
  perform dibs._note_priorities(array_agg(t.queue_id), array_agg(t.priority))
  from unnest(tickets) as t join dibs.queue as q on q.id = t.queue_id and q.priority <> t.priority having count(*) > 0;
end
$$;

comment on function dibs._return_tickets is 'Let tickets wait that were taken out, or made.';
