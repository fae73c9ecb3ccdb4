-- Roles that may use only some queues.

create table dibs.confinement (
  role regrole not null,
  queue_id integer not null,
  constraint confinement_pkey primary key (role, queue_id)
);
comment on table dibs.confinement is 'The queues that a confined role may use. A role without a row is not confined.';
