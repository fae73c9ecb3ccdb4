"""What a hot verb costs does not grow with dead or waiting rows, whatever the statistics say when it is planned."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.plans import explained

if TYPE_CHECKING:
    import psycopg

    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

DEAD = 10_000
WAITING = 500
BATCH = 10

QUEUES = {
    "plain": ("", ""),
    "nothing": ("", "'due_at', now() + interval '1 year'"),
    "other": ("", "'dedup_key', 'key ' || n"),
    "newest": ("""dibs.set_queue('newest', '{"newest_first": true}')""", ""),
    "bounded": (
        """dibs.set_queue('bounded', '{"max_depth": 100, "max_age": "1 year", "when_full": "sideline"}')""", ""),
    "grouped": ("", "'group', n % 50"),
    "ruled": (
        "dibs.set_group('ruled', null,"
        """ '{"concurrency": 100000, "rate": 1000000, "burst": 1000000, "max_depth": 1000000}')""",
        "'group', n % 50"),
    "strict": ("""dibs.set_group('strict', null, '{"concurrency": 1}')""", "'group', n % 50"),
    "limited": ("dibs.set_limit(queue => 'limited', concurrency => 100000)", ""),
    "rated": ("dibs.set_limit(queue => 'rated', rate => 1000000, burst => 1000000)", ""),
    "kinds": ("dibs.set_limit(kind => 'limited', concurrency => 100000)", "'kind', 'limited'"),
    "scarce": ("dibs.set_limit(resource => 'gpu', concurrency => 100000)", """'resources', '{"gpu": 1}'::jsonb"""),
    "tight": ("dibs.set_limit(kind => 'tight', concurrency => 10)", "'kind', 'tight'"),
}  # fmt: skip
"""The queues: what is set for each, and what its jobs have."""

HOT = (
    "ready", "lease", "blocked", "fingerprint", "limit_unit", "limit_rate", "group_pointer", "group_gate", "delivery",
)  # fmt: skip

VERBS: dict[str, str] = {
    "claim": "select from dibs.claim('{plain}')",
    "claim one after another": "select from dibs.claim('{plain}') union all select from dibs.claim('{plain}')",
    "claim many": "select from dibs.claim('{plain}', 10)",
    "claim several queues": "select from dibs.claim('{plain,other,grouped,limited,kinds,newest}', 10)",
    "claim nothing": "select from dibs.claim('{nothing}', 10)",
    "claim newest": "select from dibs.claim('{newest}', 10)",
    "claim groups": "select from dibs.claim('{grouped}', 10)",
    "claim groups with a policy": "select from dibs.claim('{ruled}', 10)",
    "claim groups in strict order": "select from dibs.claim('{strict}', 10)",
    "claim limited": "select from dibs.claim('{limited}', 10)",
    "claim rated": "select from dibs.claim('{rated}', 10)",
    "claim a limited kind": "select from dibs.claim('{kinds}', 10)",
    "claim a resource": "select from dibs.claim('{scarce}', 10)",
    "claim what was blocked": "select from dibs.claim('{tight}', 10) /* %(freed)s */",
    "claim again": "select from dibs.claim('{plain}', 10, token => (%(tokens)s::uuid[])[1], repeats => true)"
    " where %(ids)s::uuid[] <> '{}'",
    "next_due": "select dibs.next_due('{plain,other,grouped,limited,kinds,newest}')",
    "complete": "select from dibs.complete_many(%(ids)s, %(tokens)s)",
    "complete one": "select from dibs.complete((%(ids)s::uuid[])[1], (%(tokens)s::uuid[])[1])",
    "fail": "select from dibs.fail_many(%(ids)s, %(tokens)s)",
    "fail for good": "select from dibs.fail_many(%(ids)s, %(tokens)s, finals => array_fill(true, array[10]))",
    "release": "select from dibs.release_many(%(ids)s, %(tokens)s)",
    "park": "select from dibs.park_many(%(ids)s, %(tokens)s)",
    "snooze": "select from dibs.snooze_many(%(ids)s, %(tokens)s, array_fill(interval '1 hour', array[10]))",
    "rescue": "select from dibs.rescue() /* %(late)s */",
    "extend": "select from dibs.extend_many(%(ids)s, %(tokens)s)",
    "extend with progress": "select from dibs.extend_many(%(ids)s, %(tokens)s, null,"
    """ array_fill('{"done": 1}'::jsonb, array[10]))""",
    "progress": """select from dibs.progress_many(%(ids)s, %(tokens)s, array_fill('{"done": 1}'::jsonb, array[10]))""",
    "ask runs to stop": "select from dibs.cancel_many(%(ids)s)",
    "cancel": "select from dibs.cancel_many(%(waiting)s)",
    "cancel by key": "select from dibs.cancel_key('other', 'key 1' || %(turn)s)",
    "status_many": "select from dibs.status_many(%(waiting)s)",
    "status": "select from dibs.status((%(waiting)s::uuid[])[1])",
    "begin a delivery": "select from dibs.begin_delivery((%(ids)s::uuid[])[1], (%(tokens)s::uuid[])[1], 'smtp')",
    "record a delivery": "select from dibs.record_delivery((%(ids)s::uuid[])[1], (%(tokens)s::uuid[])[1], 'accepted')",
    "supervise": "select from dibs.supervise('process', '{}')",
    "enqueue": "select from dibs.enqueue('plain', 'k')",
    "enqueue with an id": "select from dibs.enqueue('plain', 'k', id => dibs.make_id())",
    "enqueue a duplicate": "select from dibs.enqueue('other', 'k', dedup_key => 'key 2' || %(turn)s)",
    "enqueue in the place of another": "select from dibs.enqueue('other', 'k', dedup_key => 'key 3' || %(turn)s,"
    " on_duplicate => 'replace')",
    "enqueue to a group": """select from dibs.enqueue('grouped', 'k', "group" => '1')""",
    "enqueue to a bounded group": """select from dibs.enqueue('ruled', 'k', "group" => '1')""",
    "enqueue to a bounded queue": "select from dibs.enqueue('bounded', 'k')",
}
"""Each hot verb, in each of its forms. ``ids`` and ``tokens`` are of jobs that run, ``waiting`` of jobs that wait."""

WALKS = {"rescue", "claim again", "claim groups in strict order", "enqueue to a bounded queue"}
"""What reads dead rows, too: every lease once; the pointers of a group; what a bound counts, which pays for itself."""

COLD = (
    "select from dibs.maintain()",
    "select from dibs.rescue()",
    "select from dibs.expire()",
    "select from dibs.repair_limits()",
    "select dibs.set_limit(resource => 'disk', concurrency => 5)",
    "select dibs.drop_limit(resource => 'disk')",
    "select from dibs.resume('other', interval '1 hour')",
)
"""What shares internal functions with hot verbs: they keep the plan that their first caller in a session gave them."""


def prepare(db: Connection) -> None:
    """Make the queues; some jobs of each wait, some run, and some are blocked."""
    for name, (setting, _) in QUEUES.items():
        db.execute("select " + (setting or f"dibs.set_queue('{name}')"))
    fill(db, 60)
    for name in QUEUES:
        db.execute("select from dibs.claim(array[%s], 20)", (name,))
    db.execute("select dibs.begin_delivery(l.id, l.token, 'smtp') from dibs.lease as l limit 1")


def fill(db: Connection, count: int) -> None:
    for name, (_, options) in QUEUES.items():
        db.execute(
            "select from dibs.enqueue_many((select jsonb_agg("
            f"jsonb_build_object('queue', '{name}', 'kind', 'k') || jsonb_build_object({options}))"
            f" from generate_series(1, {count}) as n))"
        )


def live_long(db: Connection, *, analyzed: str) -> None:
    """Leave dead rows in every hot table, as a long run would, and statistics from when it was full or empty."""
    before = {
        "id": "gen_random_uuid()", "job_id": "gen_random_uuid()", "hash": "uuid_send(gen_random_uuid())",
        "due_at": "due_at - interval '1 hour'", "place": "place - interval '1 hour'", "n": "n - 1000000",
    }  # fmt: skip
    for table in HOT:
        db.execute(f"create temp table {table} as select * from dibs.{table}")
        assert db.execute(f"select from pg_temp.{table} limit 1").fetchone() is not None, table
        names = [r[0] for r in db.execute(
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and attidentity = ''",
            (f"dibs.{table}",))]  # fmt: skip
        db.execute(
            f"insert into dibs.{table} ({', '.join(names)})"
            f" select {', '.join(before.get(name, name) for name in names)} from pg_temp.{table}"
            f" cross join generate_series(1, (select {DEAD} / count(*) + 1 from pg_temp.{table})) limit {DEAD}"
        )
    if analyzed == "full":
        db.execute("analyze")
    for table in HOT:
        db.execute(f"delete from dibs.{table}")
    if analyzed == "empty":
        db.execute("vacuum")
        db.execute("analyze")
    for table in HOT:
        db.execute(f"insert into dibs.{table} overriding system value select * from pg_temp.{table}")


def arguments(db: Connection, verb: str) -> dict[str, Any]:
    """What a call needs: jobs that run, jobs that wait, leases that ran out, or units that are free again."""
    given: dict[str, Any] = {}
    if "%(ids)s" in verb or "%(late)s" in verb:
        held = db.execute("select id, token from dibs.claim('{plain}', %s)", (BATCH,)).fetchall()
        assert len(held) == BATCH
        given = {"ids": [r[0] for r in held], "tokens": [r[1] for r in held], "late": 1}
    if "%(late)s" in verb:
        db.execute("update dibs.lease set lease_until = '-infinity' where id = any (%s)", (given["ids"],))
    if "%(waiting)s" in verb:
        waiting = db.execute("select id from dibs.ready order by id desc limit %s", (BATCH,)).fetchall()
        given["waiting"] = [r[0] for r in waiting]
    if "%(freed)s" in verb:
        db.execute(
            "select dibs.complete(l.id, l.token) from dibs.lease as l join dibs.job as j using (id)"
            " where j.kind = 'tight'"
        )
        given["freed"] = 1
    if "%(turn)s" in verb:
        given["turn"] = next(turns)
    return given


turns = itertools.count(10)


def cost(db: Connection, verb: str) -> tuple[int, int, str]:
    """Pages and rows of the cheapest of several calls, since now and then one looks back; and its worst plan."""
    found = []
    for _ in range(4):
        given = arguments(db, verb)
        with explained(db) as plans:
            # In quick succession where it can be: what has looked back then rests.
            for _ in range(1 if given else 3):
                plans.clear()
                db.execute(verb, {k: v for k, v in given.items() if f"%({k})s" in verb})
                # A claim takes the first few in the order of an index: a bitmap would read all there are.
                assert "dibs.claim(" not in verb or [p.text for p in plans if "Bitmap Heap Scan" in p.text] == []
                # Leases end in the order of their ids; merged by anything else, two batches could wait in a circle.
                assert "complete_many(" not in verb or any("Merge Cond: (l.id = a.id)" in p.text for p in plans)
                inner = [p for p in plans if verb[:30] not in p.text] or plans
                worst = max(inner, key=lambda p: p.buffers + p.rows)
                found.append((max(p.buffers for p in plans), max(p.rows for p in plans), worst.text))
    return min(found)


@pytest.mark.parametrize("analyzed", ["empty", "full"])
def test_no_plan_of_a_hot_verb_flips(connect: Connect, analyzed: str) -> None:
    """Pin, fill, empty, vacuum, analyze, and then plan in a fresh session, where colder verbs came first."""
    db, pin = connect(), connect()
    prepare(db)
    pin.execute("begin isolation level repeatable read")
    pin.execute("select count(*) from dibs.queue")
    live_long(db, analyzed=analyzed)
    fill(db, 2 * WAITING)
    fresh = connect()
    for verb in COLD:
        fresh.execute(verb)
    costs = {name: cost(fresh, verb) for name, verb in VERBS.items()}
    assert len(costs) == len(VERBS)
    most = {name: (DEAD + 3000, 5000) if name in WALKS else (1500, WAITING / 2) for name in VERBS}
    slow = [
        f"{n}: {c[0]} pages, {c[1]} rows\n{c[2]}" for n, c in costs.items() if c[0] > most[n][0] or c[1] > most[n][1]
    ]
    assert not slow, "\n\n".join(slow)
