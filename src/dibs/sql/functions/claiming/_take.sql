-- The plan of a claim: which tickets it takes out of ready, from which queues, in which order.

create or replace function dibs._take_oldest(queues dibs.queue[], want integer, claim dibs.claim_order) returns dibs.taken_batch[]
language plpgsql volatile
as $$
declare
  v_began bigint := dibs._micros(clock_timestamp());
  v_scans dibs.queue_scan[] := '{}'::dibs.queue_scan[];
  v_batches dibs.taken_batch[] := '{}'::dibs.taken_batch[];
  v_queue dibs.queue;
  v_scan dibs.queue_scan;
  v_step record;
  v_kept integer := 0;
  v_most integer;
  v_is_limited boolean := false;
  v_is_grouped boolean := false;
begin
  foreach v_queue in array queues loop
    v_scan := dibs._open_scan(v_queue, want, v_began, claim);
    if (v_scan.queue).id is not null then
      v_scans := v_scans || v_scan;
      v_is_limited := v_is_limited or v_queue.has_job_limits;
      v_is_grouped := v_is_grouped or v_queue.has_groups;
    end if;
  end loop;
  if cardinality(v_scans) = 0 then
    return v_batches;
  end if;
  if v_is_limited then
    v_scans := dibs._unblock_and_lower_floors(v_scans, claim.at);
  end if;
  -- Groups first, but for the share of what has none; and again at the end, if that came to less.
  if v_is_grouped then
    -- Shared is what may start, which the queues' own limits may make less than was asked for.
    v_most := least(want, (select sum(s.allowed) from unnest(v_scans) as s));
    v_kept := dibs._plain_share(v_scans, v_most, claim.at);
    v_step := dibs._take_groups(v_scans, v_most - v_kept, claim);
    v_scans := v_step.scans;
    v_batches := v_step.batches;
    want := want - v_step.taken;
  end if;
  v_step := dibs._take_plain(v_scans, want, claim);
  v_scans := v_step.scans;
  v_batches := v_batches || v_step.batches;
  want := want - v_step.taken;
  perform dibs._close_scans(v_scans, dibs._micros(clock_timestamp()) - v_began);
  if v_kept > 0 and want > 0 then
    v_step := dibs._take_groups(v_scans, want, claim);
    v_scans := v_step.scans;
    v_batches := v_batches || v_step.batches;
  end if;
  perform dibs._settle_queue_limits(v_scans, claim.at);
  return v_batches;
end
$$;

comment on function dibs._take_oldest is
'Take up to `want` tickets of queues that are served from their oldest end: groups in their turns, the rest by priority and due
time.';

create or replace function dibs._take_bytes(
  oldest dibs.queue[], newest dibs.queue[], want integer, claim dibs.claim_order) returns dibs.taken_batch[]
language plpgsql volatile
as $$
declare
  v_batches dibs.taken_batch[] := '{}'::dibs.taken_batch[];
  v_tickets dibs.ready[];
  v_queue dibs.queue;
begin
  for v_queue in select q.* from unnest(newest || null::dibs.queue) as q order by random() loop
    if v_queue.id is null then
      v_batches := dibs._fit_batches(dibs._take_oldest(oldest, want, claim), claim.at);
    else
      v_tickets := dibs._take_newest(v_queue, want, claim);
      v_batches := array[row(v_queue, v_tickets, null, null, null, claim.at)::dibs.taken_batch];
    end if;
    exit when exists (select from unnest(v_batches) as t where cardinality(t.tickets) > 0);
  end loop;
  return v_batches;
end
$$;

comment on function dibs._take_bytes is
'As _take_from, where bytes have to be counted: from the oldest-first queues, or from one newest-first queue, as chance decides.';

create or replace function dibs._is_plain(queue dibs.queue, want integer) returns boolean
language sql immutable parallel safe
return not ((queue).newest_first or (queue).has_limit or (queue).has_job_limits or (queue).has_groups)
  and not dibs._counts_bytes(queue, want);

comment on function dibs._is_plain is 'Whether a claim of that many can take from this queue by _take_single.';

create or replace function dibs._take_from(queues dibs.queue[], want integer, claim dibs.claim_order) returns dibs.taken_batch[]
language plpgsql volatile
as $$
declare
  v_queue dibs.queue;
  v_oldest dibs.queue[] := '{}'::dibs.queue[];
  v_newest dibs.queue[] := '{}'::dibs.queue[];
  v_batches dibs.taken_batch[] := '{}'::dibs.taken_batch[];
  v_tickets dibs.ready[];
  v_counts_bytes boolean := false;
  -- Two orders cannot be merged, so which goes first is left to chance and neither starves.
  v_newest_last boolean := random() < 0.5;
begin
  foreach v_queue in array queues loop
    v_counts_bytes := v_counts_bytes or dibs._counts_bytes(v_queue, want);
    if dibs._is_newest_first(v_queue) then
      v_newest := v_newest || v_queue;
    else
      v_oldest := v_oldest || v_queue;
    end if;
  end loop;
  if v_counts_bytes then
    return dibs._take_bytes(v_oldest, v_newest, want, claim);
  end if;
  if cardinality(v_newest) = 0 then
    return dibs._take_oldest(v_oldest, want, claim);
  end if;
  if v_newest_last and cardinality(v_oldest) > 0 then
    v_batches := dibs._take_oldest(v_oldest, want, claim);
    want := want - (select coalesce(sum(cardinality(t.tickets)), 0) from unnest(v_batches) as t);
  end if;
  for v_queue in select q.* from unnest(v_newest) as q order by random() loop
    exit when want = 0;
    v_tickets := dibs._take_newest(v_queue, want, claim);
    v_batches := v_batches || row(v_queue, v_tickets, null, null, null, claim.at)::dibs.taken_batch;
    want := want - cardinality(v_tickets);
  end loop;
  if not v_newest_last and cardinality(v_oldest) > 0 and want > 0 then
    v_batches := v_batches || dibs._take_oldest(v_oldest, want, claim);
  end if;
  return v_batches;
end
$$;

comment on function dibs._take_from is 'Take up to `want` tickets of these queues out of ready.';
