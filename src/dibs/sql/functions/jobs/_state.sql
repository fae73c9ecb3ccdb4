-- What a job is now. One statement, one snapshot: a ticket is in one table or nowhere.

create or replace function dibs._state(id uuid) returns text
language sql volatile
begin atomic
  select case
    when (select s.confined from dibs.setting as s) and dibs._is_hidden_job(_state.id) then 'unknown'
    else coalesce(
      (select case when r.due_at > dibs.now() then 'scheduled' else 'ready' end from dibs.ready as r where r.id = _state.id),
      (select 'blocked' from dibs.blocked as b where b.id = _state.id),
      (select 'running' from dibs.lease as l where l.id = _state.id),
      (select d.state from dibs.dead as d where d.id = _state.id),
      (select 'succeeded' from dibs.job as j where j.id = _state.id),
      'unknown')
  end;
end;

comment on function dibs._state is 'The state of a job, as `status` says it.';
