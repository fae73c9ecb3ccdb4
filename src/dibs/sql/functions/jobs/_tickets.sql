-- Tickets leave and enter `ready` and `blocked`: waiting ones are withdrawn, and tickets are returned to `ready`.

create or replace function dibs._ticket(
  id uuid, due_at timestamptz, expire_at timestamptz, queue_id integer, run integer, charged integer, losses integer,
  priority integer, own_lease interval, history text, fingerprint bytea, group_key uuid, cost integer,
  ring boolean default true)
returns dibs.ready
language sql immutable parallel safe
return row(id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history, fingerprint,
  group_key, cost)::dibs.ready;

comment on function dibs._ticket is
'Return a ticket for `ready`. `ring` says that it may wake the workers of its queue. Call it with the names of its
arguments.';

create or replace function dibs._ticket_after_run(
  lease dibs.lease, due_at timestamptz, charged integer, losses integer, own_lease interval, ring boolean)
returns dibs.ready
language sql immutable parallel safe
return dibs._ticket(id => (lease).id, due_at => due_at, expire_at => (lease).expire_at, queue_id => (lease).queue_id,
  run => (lease).run, charged => charged, losses => losses, priority => (lease).priority, own_lease => own_lease,
  history => (lease).history, fingerprint => (lease).fingerprint, group_key => (lease).group_key, cost => (lease).cost,
  ring => ring);

comment on function dibs._ticket_after_run is 'Return the ticket for `ready` of a job whose run ended without success.';

create or replace function dibs._withdraw_tickets(
  ids uuid[], at timestamptz, keeps_groups boolean default false, queues integer[] default null)
returns dibs.ready[]
language plpgsql volatile
as $$
declare
  v_gone record;
begin
  with from_ready as (
    delete from dibs.ready as r using (
      select r.id from unnest(ids) as k (id)
      cross join lateral (
        select r.id from dibs.ready as r
        where r.id = k.id and (queues is null or r.queue_id = any (queues)) for update) as r
    ) as h where r.id between h.id and h.id
    returning r as ticket, dibs.group_hold 'none' as group_hold
  ), from_blocked as (
    delete from dibs.blocked as b using (
      select b.id from unnest(ids) as k (id)
      cross join lateral (
        select b.id from dibs.blocked as b
        where b.id = k.id and (queues is null or b.queue_id = any (queues)) for update) as b
    ) as h where b.id between h.id and h.id
    returning dibs._ticket(id => b.id, due_at => b.due_at, expire_at => b.expire_at, queue_id => b.queue_id,
      run => b.run, charged => b.charged, losses => b.losses, priority => b.priority, own_lease => b.own_lease,
      history => b.history, fingerprint => b.fingerprint, group_key => b.group_key, cost => b.cost) as ticket,
      b.group_hold
  ), gone as (
    select r.ticket, r.group_hold from from_ready as r union all select b.ticket, b.group_hold from from_blocked as b
  )
  select array_agg(g.ticket) as tickets,
    array_agg((g.ticket).group_key) filter (where (g.ticket).group_key is not null) as group_keys,
    array_agg(g.group_hold) filter (where (g.ticket).group_key is not null) as group_holds,
    array_agg((g.ticket).queue_id) filter (where (g.ticket).group_key is not null) as queues,
    array_agg((g.ticket).id) filter (where (g.ticket).group_key is not null) as ids
  into v_gone from gone as g;
  if v_gone.group_keys is not null then
    if keeps_groups then
      perform dibs._end_group_runs(v_gone.group_keys, v_gone.group_holds, v_gone.queues, v_gone.ids, at);
    else
      perform dibs._wake_groups(v_gone.group_keys, v_gone.queues, v_gone.group_holds, at);
    end if;
  end if;
  return v_gone.tickets;
end
$$;

comment on function dibs._withdraw_tickets is
'Delete the tickets of those jobs that wait, and give back what they hold of the concurrency of their groups. Return the
tickets as they would be in `ready`, or null if no job waits. `ids` must be sorted, or their tickets be locked. With
`queues`, only tickets in these queues are withdrawn. With `keeps_groups`, the caller returns the tickets to the same
groups: a job that is the next one of a group in strict order stays it.';

create or replace function dibs._return_tickets(tickets dibs.ready[], at timestamptz) returns void
language plpgsql volatile
as $$
declare
  v_found record;
  v_inserted bigint;
begin
  -- One ticket of each queue rings: the one that is due first of those that may.
  select array_agg(t.id) filter (where t.rank = 1 and t.ring and q.ring) as ringing,
    array_agg(t.id) filter (where t.group_key is not null) as grouped,
    array_agg(t.queue_id) filter (where t.priority <> q.priority) as queues,
    array_agg(t.priority) filter (where t.priority <> q.priority) as priorities
  into v_found
  from (
    select t.*, row_number() over (partition by t.queue_id order by not t.ring, t.due_at, t.id) as rank
    from unnest(tickets) as t
  ) as t join dibs.queue as q on q.id = t.queue_id;
  insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring, own_lease, history,
    fingerprint, group_key, cost)
  select t.id, t.due_at, t.expire_at, t.queue_id, t.run, t.charged, t.losses, t.priority,
    coalesce(t.id = any (v_found.ringing), false), t.own_lease, t.history, t.fingerprint, t.group_key, t.cost
  from unnest(tickets) as t;
  get diagnostics v_inserted = row_count;
  perform dibs._check_moved(coalesce(cardinality(tickets), 0), v_inserted);
  if v_found.grouped is not null then
    perform dibs._add_pointers(v_found.grouped, at);
  end if;
  -- A ticket may have got another priority or queue while it was withdrawn or dead.
  if v_found.queues is not null then
    perform dibs._note_priorities(v_found.queues, v_found.priorities);
  end if;
end
$$;

comment on function dibs._return_tickets is
'Insert tickets into `ready` that the caller has made, or deleted from elsewhere. Add pointers for those of groups and
note unusual priorities, so that claims find all of them. `tickets` may be null.';
