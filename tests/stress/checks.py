"""What must hold, each as a statement that finds rows only if it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import LiteralString

TICKETS: LiteralString = """
with ticket as (
  select id, queue_id, run, group_key, fingerprint, 'ready' as place from dibs.ready
  union all select id, queue_id, run, group_key, fingerprint, 'blocked' from dibs.blocked
  union all select id, queue_id, run, group_key, fingerprint, 'lease' from dibs.lease
  union all select id, queue_id, run, null, fingerprint, 'dead' from dibs.dead
)"""


@dataclass(frozen=True)
class Check:
    """A statement that finds what must not be, and the functions that may be to blame."""

    name: str
    query: LiteralString
    suspects: str = ""

    @property
    def sql(self) -> LiteralString:
        """The statement, with each row as JSON."""
        return "select to_jsonb(found) from (" + self.query + ") as found"

    def describe(self, rows: list[Any]) -> str:
        """What was found."""
        return rows_of(rows) + (f"\nsuspects: {self.suspects}" if self.suspects else "")


UNITS = Check(
    "units of a limit, free and held, are not as many as it has",
    """
    with held as (
      select u.id, sum(u.units) as units from dibs.lease as l
      cross join lateral unnest(l.limit_ids, l.limit_units) as u (id, units) group by 1
    ), free as (select limit_id as id, sum(units) as units from dibs.limit_unit group by 1)
    select b.id, b.scope, b.name, b.concurrency, b.debt, h.units as held, f.units as free
    from dibs.limit_rule as b left join held as h on h.id = b.id left join free as f on f.id = b.id
    where b.concurrency is not null and b.concurrency + b.debt <> coalesce(h.units, 0) + coalesce(f.units, 0)""",
    "limits/_rule, limits/_units, limits/_queue_limit",
)
NEGATIVE = Check(
    "a limit has negative units or a negative debt",
    "select limit_id, n, units from dibs.limit_unit where units < 1"
    " union all select id, null, debt from dibs.limit_rule where debt < 0",
    "limits/_units, repair_limits",
)
GATES = Check(
    "the gate of a limited group does not count what runs",
    """
    with held as (
      select group_key, queue_id, count(*) as units from dibs.lease where group_hold > 'none' group by 1, 2
      union all select group_key, queue_id, count(*) from dibs.blocked where group_hold > 'none' group by 1, 2
      union all select group_key, abs(queue_id), sum(ended_runs) from dibs.group_pointer
        where ended_runs > 0 group by 1, 2
    ), group_keys as (
      select group_key, queue_id from held union select group_key, queue_id from dibs.group_gate
    ), gate as (
      select distinct on (group_key) group_key, n, running, tat, next_id, floors
      from dibs.group_gate order by group_key, n desc
    )
    select q.name, l.group_key, p.concurrency, g.running, g.next_id,
      (select sum(h.units) from held as h where h.group_key = l.group_key and h.queue_id = l.queue_id) as held,
      (select count(*) from dibs.lease as x where x.group_key = l.group_key and x.group_hold > 'none') as leases,
      (select count(*) from dibs.blocked as x where x.group_key = l.group_key and x.group_hold > 'none') as blocked,
      (select sum(x.ended_runs) from dibs.group_pointer as x where x.group_key = l.group_key) as freed
    from group_keys as l join dibs.queue as q on q.id = l.queue_id
    cross join lateral dibs._find_group_policy(l.queue_id, l.group_key) as p
    left join gate as g on g.group_key = l.group_key
    where p.concurrency is not null and coalesce(g.running, 0) <> coalesce(
      (select sum(h.units) from held as h where h.group_key = l.group_key and h.queue_id = l.queue_id), 0)""",
    "groups/_apply, groups/_add_pointers, groups/_gates, jobs/_tickets",
)
UNPACED = Check(
    "a limit has a rate, but nothing says how far it is spent: nothing starts",
    """
    select b.id, b.scope, b.name, b.rate from dibs.limit_rule as b
    where b.rate is not null and not exists (select from dibs.limit_rate as p where p.limit_id = b.id)""",
    "limits/_rule, limits/_rate, limits/_queue_limit",
)
TWO_PLACES = Check(
    "a job has two tickets",
    TICKETS + "select id, array_agg(place) from ticket group by 1 having count(*) > 1",
)
NO_JOB = Check(
    "a ticket has no job",
    TICKETS + "select t.* from ticket as t where not exists (select from dibs.job as j where j.id = t.id)",
)
NO_QUEUE = Check(
    "a ticket lies in a queue that is gone",
    TICKETS + "select t.* from ticket as t where not exists (select from dibs.queue as q where q.id = t.queue_id)",
    "operate/move, queues/_names",
)
OTHER_QUEUE = Check(
    "a job and its ticket lie in different queues",
    TICKETS + "select t.*, j.queue_id as of_job from ticket as t join dibs.job as j on j.id = t.id"
    " where j.queue_id <> t.queue_id",
    "operate/move",
)
OLD_RUN = Check(
    "the next run of a job has the number of an earlier one",
    TICKETS
    + """
    select t.id, t.place, t.run, a.run as last from ticket as t
    cross join lateral (select max(a.run) as run from dibs.attempt as a where a.id = t.id) as a
    where a.run > t.run or a.run = t.run and t.place = 'lease'""",
    "operate/_undo, operate/cancel_where",
)
TWO_ENDS = Check(
    "a job succeeded twice",
    "select id, array_agg(run) from dibs.attempt where outcome is null group by 1 having count(*) > 1",
)
TWO_HOLDERS = Check(
    "two live jobs have one dedup key",
    TICKETS
    + """
    select j.headers ->> 'key' as key, array_agg(t.id || ' ' || t.place)
    from ticket as t join dibs.job as j on j.id = t.id join dibs.queue as q on q.id = j.queue_id
    where t.fingerprint is not null and t.place <> 'dead'
      and (j.headers ->> 'key' like 'keep-%' or q.name = 'still' and j.headers ->> 'key' like 'swap-%' and t.run = 0)
    group by 1, t.fingerprint having count(*) > 1""",
    "dedup/_take, dedup/_take_again",
)
FREE_KEY = Check(
    "a live job does not hold its dedup key",
    TICKETS
    + """
    select t.id, t.place, j.headers ->> 'key' as key, f.id as holder, f.scope, f.until
    from ticket as t join dibs.job as j on j.id = t.id left join dibs.fingerprint as f on f.hash = t.fingerprint
    where t.fingerprint is not null and t.place <> 'dead' and j.headers ->> 'key' like 'keep-%'
      and f.id is distinct from t.id""",
    "dedup/_take, dedup/_free",
)
KEY_WITHOUT_JOB = Check(
    "a dedup key is held by a job that never was",
    """
    select f.id, f.scope, f.until from dibs.fingerprint as f
    where not exists (select from dibs.job as j where j.id = f.id)
      and not exists (select from stress.gone as g where g.id = f.id)""",
    "dedup/_take",
)
FLAGS = Check(
    "a queue has forgotten what claims have to look at",
    """
    select q.name, q.has_groups, q.has_job_limits, q.has_limit, q.has_group_policy, q.has_large, w.*
    from dibs.queue as q cross join lateral (
      select exists (select from dibs.ready as r where r.queue_id = q.id and r.group_key is not null) as groups,
        exists (select from dibs.ready as r join dibs.job as j on j.id = r.id
          where r.queue_id = q.id and j.resources is not null) as resources,
        exists (select from dibs.limit_rule as b
          where b.is_set and b.scope = 'queue' and b.name = q.name) as own,
        exists (select from dibs.group_policy as p where p.queue_id = q.id) as policies,
        exists (select from dibs.ready as r join dibs.job as j on j.id = r.id
          where r.queue_id = q.id and j.size > dibs._constant('large_job_bytes')) as large) as w
    where not q.has_groups and w.groups or not q.has_job_limits and w.resources
      or not q.has_limit and w.own or not q.has_group_policy and w.policies or not q.has_large and w.large""",
    "shards/_make, queues/_names, limits/_rule",
)
UNCOUNTED = Check(
    "a job runs without the units that it needs",
    """
    select l.id, q.name, j.kind, j.resources, l.claimed_at, l.limit_ids, b.id, b.scope, b.name
    from dibs.lease as l join dibs.job as j on j.id = l.id join dibs.queue as q on q.id = l.queue_id
    join dibs.limit_rule as b on b.concurrency is not null and case b.scope
      when 'queue' then q.name = b.name when 'kind' then j.kind = b.name else j.resources ? b.name end
    where not coalesce(b.id = any (l.limit_ids), false)""",
    "limits/_rule, limits/_scopes, queues/_names",
)
LEFTOVERS = Check(
    "units or rates of limits that are gone are left",
    """
    select 'unit' as what, s.limit_id from dibs.limit_unit as s
    where not exists (select from dibs.limit_rule as b where b.id = s.limit_id)
    union select 'rate', p.limit_id from dibs.limit_rate as p
    where not exists (select from dibs.limit_rule as b where b.id = p.limit_id)""",
    "limits/_queue_limit, limits/repair_limits",
)

AT_ANY_MOMENT = (UNITS, NEGATIVE, GATES, UNPACED, TWO_PLACES, NO_QUEUE, OLD_RUN, TWO_HOLDERS, FLAGS)
"""Every transaction keeps these, so one statement sees them kept, also while others work."""
AT_REST = (*AT_ANY_MOMENT, NO_JOB, OTHER_QUEUE, TWO_ENDS, FREE_KEY, KEY_WITHOUT_JOB)
"""What holds when nobody is in the middle of anything."""


def rows_of(rows: list[Any], most: int = 6) -> str:
    """The first rows, a line for each, as they are read by people."""
    lines = [", ".join(f"{value}" for value in row) for row in rows[:most]]
    return "\n".join([*lines, *([f"… and {len(rows) - most} more"] if len(rows) > most else [])])
