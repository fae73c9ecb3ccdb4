-- The gates of limited groups: taken before tickets are, and saved when the claim knows how many tickets it took.

create or replace function dibs._take_group_gates(
  queue dibs.queue, candidates dibs.group_candidate[], locked integer[], at timestamptz) returns dibs.group_candidate[]
language plpgsql volatile
as $$
begin
  with candidate as materialized (
    -- Each candidate with its policy. A limited group is `locked` if this claim has its pointers and its lock.
    select c.*, p as found_policy, p.concurrency, p.rate, dibs._burst(p.rate, p.burst) as burst,
      case when p.is_limited is not true then dibs.group_gate_state 'none'
        when c.has_pointers and dibs._group_bucket(c.group_key) = any (locked) then 'locked' else 'busy' end as state
    from unnest(candidates) with ordinality as c
    left join lateral dibs._find_group_policy((queue).id, c.group_key) as p on true
  ), known as materialized (
    -- Add the gate row of each locked group. Its pointers tell what has changed since it was written.
    select c.*, g.spot,
      case when c.state = 'locked' then greatest(coalesce(g.running, 0) - c.ended_runs, 0) end as runs,
      case when c.concurrency = 1 then least(c.next_id, g.next_id) end as strict_id,
      -- A row from before the rate was lowered, or from a clock that was ahead, may count more than a whole burst:
      -- cap it.
      case when g.tat is not null and c.rate is not null
        then least(g.tat, at + c.burst / c.rate * interval '1 second') end as capped_tat,
      -- Merge only if there is something to merge.
      case when cardinality(g.floors) > 0 or others.floors is not null
        then dibs._merge_floors(c.floors || g.floors || others.floors) else c.floors end as all_floors
    from candidate as c
    left join lateral (
      select g.ctid as spot, g.running, g.tat, g.next_id, g.floors from dibs.group_gate as g
      where g.group_key = c.group_key order by g.n desc limit 1) as g on c.state = 'locked'
    -- In strict order the first ticket counts, even if another claim has locked the pointer to it.
    left join lateral (
      select array_agg(row(t.priority, t.floor_at, t.floor_id, t.cost)::dibs.group_floor) as floors
      from dibs.group_pointer as t
      where c.state = 'locked' and c.concurrency = 1 and t.group_key = c.group_key
        and t.priority is not null and t.floor_at <= at) as others on true
  ), gone as (
    delete from dibs.group_gate as g using known as k where g.ctid = k.spot
  )
  select array_agg(dibs._candidate(
    k.group_key, has_pointers => k.has_pointers, floors => k.all_floors, pointer_n => k.pointer_n, look_at => k.look_at,
    ended_runs => k.ended_runs, next_id => k.next_id, next_ticket => r.ticket, policy => k.found_policy,
    gate => k.state, running => k.runs, tat => k.capped_tat,
    -- The least of three numbers (null for any): by the concurrency, by the rate, and by the job that has to run next,
    -- which runs alone and not before it is due.
    free_runs => case k.state when 'busy' then 0 when 'locked' then least(
      k.concurrency - least(k.runs, k.concurrency), dibs._tokens(k.rate, k.burst, k.capped_tat, at),
      case when (r.ticket).due_at > at then 0 when (r.ticket).id is not null then 1 end) end) order by k.ordinality)
  into candidates
  from known as k
  left join lateral (
    select row(r.priority, r.due_at, r.id, coalesce(r.cost, 1))::dibs.group_floor as ticket from dibs.ready as r
    where r.id = k.strict_id and r.group_key = k.group_key and r.expire_at > at offset 0
  ) as r on k.state = 'locked';
  return coalesce(candidates, '{}');
end
$$;

comment on function dibs._take_group_gates is
'Return the candidates with their policies. Of each limited group whose bucket this claim has `locked`, delete the gate
row, and add how much of the concurrency and the rate is used, the ticket that has to run next, and how many jobs may
start (free_runs). Other limited groups are `busy` and have no free runs.';

create or replace function dibs._save_group_gates(
  queue dibs.queue, rotation integer, candidates dibs.group_candidate[], counts integer[], at timestamptz) returns void
language plpgsql volatile
as $$
begin
  with served as materialized (
    -- The groups of this claim, with what they use and what is left of them now.
    select c.group_key, l.floors, (c.policy).concurrency, (c.policy).rate,
      dibs._burst((c.policy).rate, (c.policy).burst) as burst,
      c.running + case when (c.policy).concurrency is not null then n.taken else 0 end as running,
      case when (c.policy).rate is not null and n.taken > 0
        then greatest(c.tat, at) + n.taken / (c.policy).rate * interval '1 second' else c.tat end as tat,
      -- The job that has to run next. If the group gave a job, it was that one.
      case when n.taken = 0 then (c.next_ticket).id end as next_id,
      coalesce(n.taken = 0 and (c.next_ticket).due_at > at, false) as waits_for_next,
      (c.next_ticket).due_at as next_due_at
    from unnest(candidates) with ordinality as c
    cross join lateral (select coalesce(counts[c.ordinality], 0) as taken) as n
    cross join lateral dibs._remaining_floors((queue).id, c.group_key, c.floors, at) as l
    where c.gate = 'locked'
    order by c.ordinality
  ), gate as materialized (
    select s.*,
      coalesce(s.running >= s.concurrency, false) or s.waits_for_next as is_stopped,
      -- When a token is free, so that a job may start. The whole burst is free at tat; its first token is free earlier,
      -- by the time that the other burst - 1 tokens take.
      case when s.rate is null or dibs._tokens(s.rate, s.burst, s.tat, at) > 0 then at
        else s.tat - (s.burst - 1) / s.rate * interval '1 second' end as next_token_at,
      -- When a claim has to look at the group without a pointer to a ticket: when the next job is due, or, if nothing
      -- runs or waits, at tat, to delete the gate row.
      case when s.waits_for_next then s.next_due_at
        when s.running = 0 and s.floors is null then s.tat end as wake_at
    from served as s
  ), saved as (
    insert into dibs.group_gate (group_key, queue_id, running, tat, next_id, floors)
    select g.group_key, (queue).id, g.running, g.tat, g.next_id,
      case when g.is_stopped then coalesce(g.floors, '{}') else '{}' end
    from gate as g where g.running > 0 or g.tat > at or g.next_id is not null
  ), wakeup as (
    -- Not needed if another pointer of the group is due by then: that one makes a claim look at it.
    insert into dibs.group_pointer (queue_id, group_key, look_at)
    select rotation, g.group_key, g.wake_at from gate as g
    where g.wake_at > at and not exists (
      select from dibs.group_pointer as t
      where t.group_key = g.group_key and t.look_at > at and t.look_at <= g.wake_at)
  )
  insert into dibs.group_pointer (queue_id, group_key, look_at, priority, floor_at, floor_id, cost)
  select rotation, g.group_key, greatest(g.next_token_at, f.due_at), f.priority, f.due_at, f.id, f.cost
  from gate as g cross join lateral unnest(g.floors) as f where not g.is_stopped;
end
$$;

comment on function dibs._save_group_gates is
'For each group that this claim has locked, insert its gate row, which counts the jobs taken now, and pointers to the
tickets that are left, due when the rate has a token. A group is stopped if its concurrency is used up, or if the job
that has to run next is not due: it gets no pointers to tickets, and its gate row keeps their floors. `counts` says how
many tickets each candidate gave, also those that a limit blocked then.';
