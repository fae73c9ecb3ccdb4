"""A database that has been used for ten days: set-based, so that ten million jobs take minutes.

Of every ten jobs eight succeeded, one is dead and one waits. Three quarters of them are in the queue ``bulk``, a fifth
in ``mail``, and the rest in eighteen small queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.stage import script

if TYPE_CHECKING:
    import psycopg

DAYS = 10
QUEUES = ("bulk", "mail", *(f"small-{n}" for n in range(18)))

PREPARE = """
create function pg_temp.id_of(at timestamptz, n bigint) returns uuid language sql immutable
return (left(replace(dibs._id_floor(at)::text, '-', ''), 12) || '7000' || '8' || lpad(to_hex(n), 15, '0'))::uuid;
create temporary table made (id uuid, at timestamptz, queue_id integer, sort integer);
"""

CHOOSE = """
truncate made;
insert into made
select pg_temp.id_of(t.at, t.n), t.at,
  (select q.id from dibs.queue as q where q.name = case
    when t.pick < 75 then 'bulk' when t.pick < 95 then 'mail' else 'small-' || (t.n % 18) end),
  case when {live} then 2 when t.n % 10 = 0 then 1 else 0 end
from (
  select {first}::bigint + n as n, abs(hashint8({first}::bigint + n)::bigint) % 100 as pick,
    {start} + (n - 1) * interval '{span} seconds' / {count} as at
  from generate_series(1, {count}) as n
) as t;
"""

FILL = """
insert into dibs.job (id, due_at, queue_id, priority, kind, payload)
select m.id, m.at, m.queue_id, 5, 'kind ' || m.queue_id, '{"user_id": 1, "lang": "en"}' from made as m;
insert into dibs.attempt (id, token, claimed_at, ended_at, xact, queue_id, run, outcome, error)
select m.id, m.id, m.at + interval '1 second', m.at + interval '2 seconds', 1, m.queue_id, 1,
  case m.sort when 1 then 'failed' end::dibs.outcome, case m.sort when 1 then 'it broke' end
from made as m where m.sort < 2;
insert into dibs.dead (id, due_at, ended_at, queue_id, run, charged, losses, priority, state, reason)
select m.id, m.at, m.at + interval '2 seconds', m.queue_id, 1, 5, 0, 5, 'exhausted', 'it broke'
from made as m where m.sort = 1;
insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)
select m.id, m.at, 'infinity', m.queue_id, 0, 0, 0, 5, false from made as m where m.sort = 2;
"""

STATISTICS = """
insert into dibs.stat (queue_id, kind, grain, at, succeeded, runs, waits)
select q.id, 'kind ' || q.id, g.grain, t.at, 350, 350, 350
from dibs.queue as q
cross join (values ('minute', interval '1 minute', interval '2 days'), ('hour', interval '1 hour', interval '10 days'),
  ('ever', interval '100 days', interval '0')) as g (grain, every, back)
cross join lateral generate_series(date_trunc('hour', now()) - g.back, now(), g.every) as t (at);
"""


def build(conn: psycopg.Connection[Any], jobs: int) -> None:
    """Fill a fresh database with that many jobs, in parts of a day each; the newest day has what waits."""
    for name in QUEUES:
        conn.execute("select dibs.set_queue(%s, '{\"ttl\": null}')", (name,))
    conn.execute(script(PREPARE))
    for day in range(DAYS, 0, -1):
        start = f"date_trunc('day', now(), 'UTC') - interval '{day} days'"
        conn.execute(script(f"select dibs._make_day(t, ({start})::date) from unnest(array['job', 'attempt']) as t"))
        _fill(conn, start, 86_400, jobs * 9 // 10 // DAYS, day * jobs, live=False)
    conn.execute("select from dibs.make_days()")
    _fill(conn, "now() - interval '1 hour'", 3_600, jobs // 10, 0, live=True)
    conn.execute(script(STATISTICS))
    conn.execute("vacuum (analyze)")


def _fill(conn: psycopg.Connection[Any], start: str, span: int, count: int, first: int, *, live: bool) -> None:
    chosen = {"start": start, "span": span, "count": count, "first": first, "live": "true" if live else "false"}
    conn.execute(script(CHOOSE.format(**chosen)))
    conn.execute(script(FILL))
