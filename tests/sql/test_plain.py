"""The short ways for plain queues and for one job do what the general ones do."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pytest

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

SHORT, GENERAL = "{short}", "{general,empty}"
"""What is claimed: one plain queue, or the same with another one, which is too much for the short way."""


def script(text: str) -> LiteralString:
    """A statement of the test's own."""
    return text


def enqueue(db: Connection, rng: random.Random, n: int) -> None:
    """The same job into both queues: due now or a little ago, of some priority, perhaps with options."""
    options = {
        "ago": rng.choice([0, 0, 1, 5, 60]),
        "priority": rng.choice([3, 5, 5, 5, 9]),
        "lease": rng.choice([None, None, "7 seconds"]),
        "history": rng.choice([None, None, "failures"]),
        "ttl": rng.choice(["1 day", "1 day", "1 minute"]),
    }
    for queue in ("short", "general"):
        db.execute(
            "select dibs.enqueue(%(queue)s, 'k', to_jsonb(%(n)s::int), priority => %(priority)s,"
            " due_at => dibs.now() - make_interval(secs => %(ago)s), lease => %(lease)s::interval,"
            " history => %(history)s, ttl => %(ttl)s::interval)",
            {"queue": queue, "n": n, **options},
        )


def move(db: Connection, seconds: float) -> None:
    """Move the clock, on a connection that is there."""
    db.execute("update dibs.test_clock set shift = shift + make_interval(secs => %s)", (seconds,))


def claim(conn: Connection, queues: str, count: int) -> list[tuple[Any, ...]]:
    """What a claim hands out, but for what is random."""
    return conn.execute(
        "select payload, kind, priority, run, attempt, max_attempts, losses,"
        " round(extract(epoch from lease_until - claimed_at)) from dibs.claim(%s, %s)",
        (queues, count),
    ).fetchall()


LEASES = """
select j.payload, l.run, l.charged, l.losses, l.priority, l.own_lease, l.history, l.fingerprint is null, l.group_hold,
  l.limit_ids, round(extract(epoch from l.expire_at - l.due_at))
from dibs.lease as l join dibs.job as j on j.id = l.id join dibs.queue as q on q.id = l.queue_id
where q.name = %s order by 1
"""
BELOW = """
select count(*) from dibs.ready as r join dibs.queue as q on q.id = r.queue_id
cross join lateral (select dibs._recall('floor', q.id)::dibs.floor as floor) as f
cross join lateral unnest((f.floor).priorities, (f.floor).due_us, (f.floor).ids) as l (priority, due_us, id)
where l.priority = r.priority and r.due_at <= dibs.now() and (r.due_at, r.id) < (dibs._from_micros(l.due_us), l.id)
"""


@pytest.mark.parametrize("seed", range(2))
def test_a_plain_queue_is_claimed_from_as_any_other(db: Connection, connect: Connect, clock: Clock, seed: int) -> None:
    rng = random.Random(seed)
    short, general = connect(), connect()
    clock.freeze()
    for queue in ("short", "general", "empty"):
        db.execute("select dibs.set_queue(%s)", (queue,))
    for n in range(60):
        if n % 3 == 0:
            for k in range(rng.choice([1, 1, 4])):
                enqueue(db, rng, 10 * n + k)
                move(db, 0.001)  # Ids of one moment have no order.
        move(db, rng.choice([0.0, 0.1, 2.0]))
        count = rng.choice([1, 1, 2, 5, 25])
        assert claim(short, SHORT, count) == claim(general, GENERAL, count)
        assert short.execute(BELOW).fetchone() == general.execute(BELOW).fetchone() == (0,)
        assert db.execute(LEASES, ("short",)).fetchall() == db.execute(LEASES, ("general",)).fetchall()
        for queue in ("short", "general"):
            db.execute(
                "select dibs.complete(l.id, l.token) from dibs.lease as l join dibs.queue as q on q.id = l.queue_id"
                " where q.name = %s and l.priority = %s",
                (queue, 5 if n % 2 else 9),
            )


def test_a_locked_ticket_keeps_the_floor_down(db: Connection, connect: Connect, clock: Clock) -> None:
    """Who holds it may roll back, and then it must be there for the next claim."""
    for priority in (9, 5):
        db.execute("select dibs.enqueue('short', 'k', priority => %s)", (priority,))
    clock.move(10)
    other = connect()
    other.execute("begin")
    other.execute("select from dibs.ready for update")
    assert claim(db, SHORT, 10) == []
    assert db.execute(BELOW).fetchone() == (0,)
    other.execute("rollback")
    assert len(claim(db, SHORT, 10)) == 2


QUEUES = {
    "plain": ("dibs.set_queue('{0}')", "null"),
    "without history": ("""dibs.set_queue('{0}', '{{"history": "failures"}}')""", "null"),
    "limited": ("dibs.set_limit(queue => '{0}', concurrency => 2)", "null"),
    "limited kind": ("dibs.set_limit(kind => '{0}', concurrency => 2)", "null"),
    "strict groups": ("""dibs.set_group('{0}', null, '{{"concurrency": 1}}')""", "'g'"),
}


WAYS = {
    "one": "select dibs.complete(%(id)s, %(token)s, %(result)s)",
    "batch": "select answer from dibs.complete_many(array[%(id)s], array[%(token)s], array[%(result)s::jsonb])",
    "many": "select answer from dibs.complete_many(array[%(id)s, dibs.make_id()], array[%(token)s, gen_random_uuid()],"
    " array[%(result)s::jsonb, null])",
}
"""Each completes a job: by itself, as a batch of one, and in a batch with another."""

LEFT = """
select (dibs.status(%(id)s)).state, (select count(*) from dibs.lease where id = %(id)s),
  (select count(*) from dibs.fingerprint where id = %(id)s),
  (select jsonb_agg(jsonb_build_array(a.run, a.outcome, a.result, a.progress, a.worker))
   from dibs.attempt as a where a.id = %(id)s),
  (select sum(u.units) from dibs.limit_unit as u join dibs.limit_rule as r on r.id = u.limit_id
   where r.name = %(queue)s),
  (select count(*) from dibs.claim(array[%(queue)s], 10))
"""
"""What is left of a job that was completed, and whether the next one can be claimed."""


@pytest.mark.parametrize("setting", QUEUES)
def test_one_job_is_completed_as_in_a_batch(db: Connection, setting: str) -> None:
    rule, group = QUEUES[setting]
    left = []
    for queue, statement in WAYS.items():
        db.execute(script("select " + rule.format(queue)))
        for n in range(2):
            db.execute(
                script(f"select dibs.enqueue('{queue}', '{queue}', '1', dedup_key => 'key {n}', \"group\" => {group})")
            )
        (job,) = db.execute("select id, token from dibs.claim(array[%s])", (queue,)).fetchall()
        db.execute("select dibs.progress(%s, %s, '{\"done\": 1}')", job)
        asked = {"id": job[0], "token": job[1], "result": '"r"', "queue": queue}
        answer = db.execute(script(statement), asked).fetchone()
        left.append((answer, db.execute(LEFT, asked).fetchone()))
    assert left[0] == left[1] == left[2]
    assert left[0][0] == ("ok",)


def test_one_completion_refuses_what_a_batch_refuses(db: Connection) -> None:
    db.execute("select dibs.enqueue('q', 'k')")
    (job,) = db.execute("select id, token from dibs.claim('{q}')").fetchall()
    for arguments, state in (
        ((job[0], None, None), "DI010"),
        ((None, job[1], None), "DI010"),
        ((job[0], job[0], None), "DI001"),
        ((job[0], job[1], '"' + "x" * 16_000_001 + '"'), "DI012"),
    ):
        with pytest.raises(psycopg.Error) as raised:
            db.execute("select dibs.complete(%s, %s, %s)", arguments)
        assert raised.value.sqlstate == state
    assert db.execute("select dibs.complete(%s, %s)", job).fetchone() == ("ok",)
    assert db.execute("select dibs.complete(%s, %s)", job).fetchone() == ("already",)
