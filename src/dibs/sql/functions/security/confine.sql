-- confine: let a role use only some queues.

create or replace function dibs.confine(role regrole, queues text[]) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform dibs._check_isolation('confine');
  if queues is not null and pg_has_role(confine.role, 'dibs_admin', 'member') then
    raise exception using errcode = 'DI010',
      message = format('%s may do everything as dibs_admin, so a confinement would have no effect', confine.role),
      hint = 'give it dibs_producer, dibs_worker or dibs_observer instead';
  end if;
  if cardinality(queues) = 0 then
    raise exception using errcode = 'DI010', message = 'confine needs the names of the queues that the role may use',
      hint = 'null, and not an empty list, lets it use all queues again';
  end if;
  if queues is not null then
    -- Wait for transactions that make a queue. Those after us see setting.confined, and set is_confined of the queue.
    -- Readers go on.
    lock table dibs.queue in share row exclusive mode;
    update dibs.setting as s set confined = true where not s.confined;
    perform dibs._ensure_queues(queues);
    update dibs.queue as q set is_confined = true where not q.is_confined;
  end if;
  delete from dibs.confinement as c where c.role = confine.role;
  insert into dibs.confinement (role, queue_id)
  select confine.role, q.id from dibs.queue as q where q.name = any (queues);
  perform dibs._audit('confine', detail => jsonb_build_object('role', confine.role::text, 'queues', to_jsonb(queues)));
end
$$;

comment on function dibs.confine is
'Confine a role, and every role that is a member of it, to these queues: it cannot enqueue to others, claim from them,
cancel their jobs or see them. Replaces an earlier confinement; null as `queues` ends it.';
