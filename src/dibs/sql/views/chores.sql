-- Chores, and how they went the last time.

create or replace view dibs.chores with (security_barrier) as
select c.name, c.every, nullif(c.done_at, '-infinity') as done_at, nullif(c.due_at, '-infinity') as due_at, c.took,
  c.failures, case when (select dibs.confined_to()) is null then c.error end as error
from dibs.chore as c;

comment on view dibs.chores is
'The chores of the upkeep: how often each is done, when it was last done and is due next, how long it took, how often
in a row it has failed, and the last error.';
