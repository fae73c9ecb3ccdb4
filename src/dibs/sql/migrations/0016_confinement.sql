-- Roles that may use some queues and no others.

alter table dibs.setting add column confined boolean not null default false;

create function dibs.is_guarded() returns boolean
language sql stable
begin atomic
  select s.confined from dibs.setting as s;
end;

comment on function dibs.is_guarded is 'Whether some role is confined, so that queues have to be guarded.';

-- A flag of the queue, because every verb has the queue at hand: without confined roles nothing is looked up.
alter table dibs.queue add column guarded boolean not null default false;
alter table dibs.queue alter column guarded set default dibs.is_guarded();

create table dibs.confinement (
  role regrole not null,
  queue_id integer not null,
  constraint confinement_pkey primary key (role, queue_id)
);

comment on table dibs.confinement is 'Which queues a confined role may use; a role that is not here is not confined.';
