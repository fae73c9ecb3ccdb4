-- Roles that may use some queues and no others.

create table dibs.confinement (
  role regrole not null,
  queue_id integer not null,
  constraint confinement_pkey primary key (role, queue_id)
);
comment on table dibs.confinement is 'Which queues a confined role may use; a role that is not here is not confined.';
