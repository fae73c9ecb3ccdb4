-- Estimate how many tickets a table has, from a fixed number of its pages. The pages are read each time, so no
-- statistics can be out of date.

create or replace function dibs._max_sampled_pages() returns integer
language sql immutable parallel safe
return 256;

comment on function dibs._max_sampled_pages is
'The number of pages of a table that an estimate reads. A table with fewer pages is read whole, so its count is exact.';

create or replace function dibs._sampling_step(source text) returns double precision
language sql stable
return greatest(pg_relation_size(to_regclass('dibs.' || source))::double precision
  / current_setting('block_size')::integer / dibs._max_sampled_pages(), 1);

comment on function dibs._sampling_step is
'The number of pages of a table that each sampled page stands for; 1 if all pages are read.';

create or replace function dibs._sample_tickets(source text, at timestamptz) returns setof dibs.ticket_count
language plpgsql stable
as $$
declare
  v_step constant double precision := dibs._sampling_step(source);
  v_pages constant integer :=
    least(pg_relation_size('dibs.' || source) / current_setting('block_size')::integer, dibs._max_sampled_pages());
  v_page bigint;
  v_from tid;  -- Just before the first row of the page,
  v_to tid;  -- and of the next one.
begin
  for n in 0 .. v_pages - 1 loop
    v_page := floor((n + 0.5) * v_step);
    v_from := ('(' || v_page || ',0)')::tid;
    v_to := ('(' || v_page + 1 || ',0)')::tid;
    case source
      when 'ready' then
        return query
        select r.queue_id, case when r.due_at > at then 'scheduled' else 'ready' end, v_step, true, null::timestamptz,
          r.priority, r.group_key
        from dibs.ready as r where r.ctid >= v_from and r.ctid < v_to;
      when 'blocked' then
        return query
        select b.queue_id, 'blocked', v_step, true, null::timestamptz, b.priority, b.group_key
        from dibs.blocked as b where b.ctid >= v_from and b.ctid < v_to;
      when 'lease' then
        return query
        select l.queue_id, 'running', v_step, true, l.claimed_at, l.priority, l.group_key
        from dibs.lease as l where l.ctid >= v_from and l.ctid < v_to;
      when 'dead' then
        return query
        select d.queue_id, d.state, v_step, true, null::timestamptz, d.priority, null::uuid
        from dibs.dead as d where d.ctid >= v_from and d.ctid < v_to;
    end case;
  end loop;
end
$$;

comment on function dibs._sample_tickets is
'Read tickets from pages at even distances over a table (systematic sampling). Each row stands for `jobs` jobs; for 1 if
the table has so few pages that all are read.';

create or replace function dibs._round_to_three_digits(jobs double precision) returns bigint
language sql immutable strict parallel safe
return case when jobs < 1000 then jobs else round(jobs::numeric, 2 - floor(log(jobs))::integer) end;

comment on function dibs._round_to_three_digits is
'Round an estimate to three digits; numbers below 1,000 stay as they are.';
