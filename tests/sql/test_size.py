"""Looking at a large database, and the upkeep of one, costs no more than looking at a small one.

What is counted are the pages that a statement touches, not its time: it must not grow with the tables.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.db import calls
from dibs.ids import IdMaker
from tests.sql.plans import explained

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock

    Connection = psycopg.Connection[Any]

MANY = 40_000
"""More tickets than are counted one by one, on more pages than an estimate reads."""

TICKETS = {
    "ready": ("due_at, expire_at, run, charged, losses, priority, ring", "{at}, 'infinity', 0, 0, 0, 5, false"),
    "group_key": (
        "due_at, expire_at, run, charged, losses, priority, ring, group_key",
        "{at}, 'infinity', 0, 0, 0, 5, false, md5((n % 50)::text)::uuid",
    ),
    "blocked": ("due_at, expire_at, run, charged, losses, priority, waits_for", "{at}, 'infinity', 0, 0, 0, 5, 'x'"),
    "lease": (
        "token, due_at, expire_at, claimed_at, lease_until, run, charged, losses, priority",
        "gen_random_uuid(), {at}, 'infinity', {at}, 'infinity', 1, 1, 0, 5",
    ),
    "dead": (
        "due_at, ended_at, run, charged, losses, priority, state, reason",
        "{at}, {at}, 1, 1, 0, 5, (array['failed', 'exhausted'])[n % 4 / 3 + 1], 'it broke'",
    ),
}
"""The columns of each table of tickets, and what is put in."""


CALLS = itertools.count()


def fill(db: Connection, what: str, count: int, *, queue: str = "q", at: str = "now() - interval '1 minute'") -> None:
    """Put tickets and their jobs into the tables; to enqueue and end them would take minutes."""
    columns, values = TICKETS[what]
    db.execute("select dibs.set_queue(%s)", (queue,))
    first = str(IdMaker().make(1)[0])[:15] + f"000-8000-{next(CALLS):04x}"
    made = f"""select ('{first}' || lpad(to_hex(n), 8, '0'))::uuid as id, q.id as queue_id, n
      from dibs.queue as q, generate_series(1, {count}) as n where q.name = '{queue}'"""
    db.execute(
        "insert into dibs.job (id, due_at, queue_id, priority, kind)"
        f" select m.id, now(), m.queue_id, 5, 'kind ' || m.n % 3 from ({made}) as m"
    )
    db.execute(
        f"insert into dibs.{'ready' if what == 'group_key' else what} (id, queue_id, {columns})"
        f" select m.id, m.queue_id, {values.format(at=at)} from ({made}) as m"
    )


def pages(db: Connection, statement: str, args: tuple[Any, ...] = ()) -> int:
    """How many pages a statement touches, in a session that has planned it before."""
    db.execute(statement, args)
    with explained(db) as plans:
        db.execute(statement, args)
    return plans[-1].buffers


def test_what_is_little_is_counted_exactly(client: dibs.Client, db: Connection) -> None:
    for count, what in enumerate(TICKETS, start=3):
        fill(db, what, count)
    fill(db, "ready", 9, at="now() + interval '1 hour'")
    fill(db, "ready", 11, queue="other")
    depth = client.queues.depth("q")
    assert (depth.ready, depth.scheduled, depth.blocked, depth.running, depth.dead) == (3 + 4, 9, 5, 6, 7)
    assert depth.estimated == []
    assert [(d.queue, d.ready, d.estimated) for d in client.queues.depths()] == [("other", 11, []), ("q", 7, [])]


@pytest.mark.parametrize(
    ("what", "state"),
    [("ready", "ready"), ("group_key", "ready"), ("blocked", "blocked"), ("lease", "running"), ("dead", "failed")],
)
def test_a_depth_reads_no_more_of_a_large_table(client: dibs.Client, db: Connection, what: str, state: str) -> None:
    """What is much is an estimate, and says so."""
    fill(db, what, MANY)
    fill(db, what, 7, queue="few")
    depth = client.queues.depth("q")
    assert state in depth.estimated
    assert getattr(depth, state) == pytest.approx(MANY * 3 // 4 if what == "dead" else MANY, rel=0.05)
    assert depth.told(state) == f"≈ {getattr(depth, state):,}"
    if what != "lease":  # They have no index by queue.
        few = client.queues.depth("few")
        assert (getattr(few, "dead" if what == "dead" else state), few.estimated) == (7, [])
    much = pages_of_looks(db)
    fill(db, what, MANY)
    more = pages_of_looks(db)
    # The tickets of groups lie in the order of the groups, each on another page.
    assert max(more) < (12_000 if what == "group_key" else 3000)
    assert sum(more) < 1.2 * sum(much)


def pages_of_looks(db: Connection) -> list[int]:
    return [pages(db, "select * from dibs.depth('q')"), pages(db, "select * from dibs.depth()")]


def test_many_queues_share_what_is_counted(client: dibs.Client, db: Connection) -> None:
    for n in range(50):
        fill(db, "ready", MANY // 50, queue=f"queue-{n}")
    assert pages(db, "select * from dibs.depth()") < 5000
    depths = client.queues.depths()
    assert len(depths) == 50
    assert sum(d.ready for d in depths) == pytest.approx(MANY, rel=0.2)
    assert all(d.ready >= 200 for d in depths), "what was counted is the least it can be"


def test_an_estimate_does_not_rest_on_old_statistics(client: dibs.Client, db: Connection) -> None:
    db.execute("vacuum (analyze) dibs.ready")
    fill(db, "ready", MANY)
    fill(db, "ready", MANY, queue="other")
    assert client.queues.depth("q").ready == pytest.approx(MANY, rel=0.05)
    db.execute("analyze dibs.ready")
    # What is deleted leaves its pages behind, and no vacuum has seen it.
    db.execute("delete from dibs.ready where queue_id = (select id from dibs.queue where name = 'other')")
    db.execute(
        "delete from dibs.ready where id in (select id from dibs.ready order by md5(id::text) limit %s)", (MANY // 2,)
    )
    assert client.queues.depth("q").ready == pytest.approx(MANY // 2, rel=0.1)
    assert client.queues.depth("other").ready == 0


def test_few_that_are_ready_are_counted_beside_many_that_are_scheduled(client: dibs.Client, db: Connection) -> None:
    fill(db, "ready", MANY, at="now() + interval '1 hour'")
    fill(db, "ready", 5)
    depth = client.queues.depth("q")
    assert (depth.ready, list(depth.estimated)) == (5, ["scheduled"])
    assert depth.told("waiting") == f"≈ {depth.waiting:,}"


def test_a_small_table_is_counted_however_many_there_are_of_a_queue(client: dibs.Client, db: Connection) -> None:
    fill(db, "ready", 12_000)
    assert (client.queues.depth("q").ready, client.queues.depth("q").estimated) == (12_000, [])


def test_the_oldest_untried_is_sought_among_a_thousand(client: dibs.Client, db: Connection) -> None:
    fill(db, "ready", 2000, at="now() - interval '1 hour' + n * interval '1 second'")
    db.execute("update dibs.ready set run = 1 where due_at <= now() - interval '1 hour' + interval '500 seconds'")
    depth = client.queues.depth("q")
    assert 3099 < depth.oldest_untried.total_seconds() < 3100 + 60
    assert depth.estimated == []
    db.execute("update dibs.ready set run = 1 where due_at <= now() - interval '1 hour' + interval '1500 seconds'")
    depth = client.queues.depth("q")
    assert depth.estimated == ["oldest_ready", "oldest_untried"]
    assert 2599 < depth.oldest_untried.total_seconds() < 2600 + 60, "at most as old as the last one looked at"


def test_a_step_of_a_retry_reads_no_more_however_many_are_dead(client: dibs.Client, db: Connection) -> None:
    fill(db, "dead", 12_000)
    fill(db, "dead", 12_000, queue="other")
    found = "select from dibs.retry(%s, dry_run => true, max => 100)"
    filters = ("{}", '{"queue": "q"}', '{"queue": "other"}', '{"kind": "rare"}')
    before = [pages(db, found, (filter,)) for filter in filters]
    fill(db, "dead", MANY, queue="other")
    db.execute("analyze dibs.dead, dibs.job")
    after = [pages(db, found, (filter,)) for filter in filters]
    assert max(before[:2]) < 3000
    assert max(before) < 150_000, "10,000 are looked at, each by a few pages"
    assert all(now < 1.2 * then + 100 for then, now in zip(before, after, strict=True)), (before, after)


def test_what_a_step_of_a_retry_changes_costs_no_more_however_many_are_dead(
    client: dibs.Client, db: Connection
) -> None:

    def step() -> int:
        db.execute("select from dibs.retry('{}', max => 100)")
        with explained(db) as plans:
            assert db.execute("select done from dibs.retry('{}', max => 100)").fetchone() == (100,)
        assert [plan.text for plan in plans if plan.scanned_whole] == []
        return max(plan.buffers for plan in plans)

    fill(db, "dead", 2000)
    before = step()
    fill(db, "dead", MANY)
    # Larger indexes are a level deeper: a few more pages for each of the hundred jobs.
    assert step() < before + 1500
    db.execute("analyze dibs.dead, dibs.job, dibs.ready")
    assert step() < before + 1500


def test_a_retry_goes_on_where_the_last_step_ended(client: dibs.Client, db: Connection) -> None:
    """Jobs that stay dead do not come again."""
    fill(db, "dead", 50)
    found = client.retry({"queue": "q"}, max=7, dry_run=True)
    count = found.matched
    while found.more:
        found = client.retry({"queue": "q"}, max=7, dry_run=True, after=found.next)
        count += found.matched
    assert count == 50


def test_a_step_that_looked_in_vain_says_how_far(client: dibs.Client, db: Connection) -> None:
    fill(db, "dead", 10_001)
    found = client.retry({"kind": "rare"}, dry_run=True, within=0)
    assert (found.matched, found.more) == (0, True)
    found = client.retry({"kind": "rare"}, dry_run=True, within=0, after=found.next)
    assert (found.matched, found.more) == (0, False)
    assert client.retry({"kind": "rare"}).operation is None, "nothing is written down"


def old(db: Connection, count: int, *, queue: str, days: int) -> None:
    """Jobs that succeeded that long ago, each with its attempt, in the default partitions."""
    db.execute("select dibs.set_queue(%s)", (queue,))
    first = f"left(replace(dibs._id_floor(t.at)::text, '-', ''), 12) || '70008{next(CALLS):03x}'"
    made = f"""select ({first} || lpad(to_hex(n), 12, '0'))::uuid as id, q.id as queue_id, t.at
      from (select now() - interval '{days} days' as at) as t, dibs.queue as q, generate_series(1, {count}) as n
      where q.name = '{queue}'"""
    db.execute(
        "insert into dibs.job (id, due_at, queue_id, priority, kind)"
        f" select m.id, m.at, m.queue_id, 5, 'k' from ({made}) as m"
    )
    db.execute(
        "insert into dibs.attempt (id, token, claimed_at, ended_at, xact, queue_id, run)"
        f" select m.id, m.id, m.at, m.at, 1, m.queue_id, 1 from ({made}) as m"
    )


def test_a_prune_is_a_short_step_whatever_other_queues_keep(client: dibs.Client, db: Connection) -> None:
    client.queues.set("brief", retention=timedelta(days=1), history_retention=timedelta(days=1))
    for days in (5, 4, 3):
        old(db, 12_000, queue="long", days=days)
        old(db, 10, queue="brief", days=days)
    costs, found = [], []
    for _ in range(20):
        with explained(db) as plans:
            rows = db.execute("select name, outcome, trimmed from dibs.prune()").fetchall()
        costs.append(plans[-1].buffers)
        found += rows
        if not rows:
            break
    assert rows == [], "it has come to an end"
    assert {(name, sum(row[2] for row in found if row[0] == name)) for name in ("job", "attempt")} == {
        ("job", 30), ("attempt", 30)}  # fmt: skip
    assert max(costs[2:]) < 40_000
    assert db.execute("select count(*) from dibs.job").fetchall() == [(36_000,)]


def test_the_dead_of_a_day_go_before_it_in_short_steps(client: dibs.Client, db: Connection, clock: Clock) -> None:
    """While a day is dropped, everyone waits. A dead row and its job leave together."""
    fill(db, "dead", 25_000)
    fill(db, "ready", 1)
    clock.move(timedelta(days=45))
    steps: list[Any] = []
    while rows := client.upkeep.prune():
        steps += [(row.outcome, row.rows) for row in rows if row.name.startswith("job")]
        [(strays,)] = db.execute(
            "select count(*) from dibs.job as j where not exists (select from dibs.dead as d where d.id = j.id)"
            " and not exists (select from dibs.ready as r where r.id = j.id)"
        ).fetchall()
        assert strays == 0
    assert [step for step in steps if step[0] == "trimmed"] == [("trimmed", 10_000)] * 2
    assert ("dropped", None) in steps[-10:]
    assert client.queues.depth("q").dead == 0
    assert db.execute("select count(*) from dibs.job").fetchall() == [(1,)]


def test_runs_are_counted_in_steps_however_many_a_transaction_ended(client: dibs.Client, db: Connection) -> None:
    client.enqueue("q", "k")
    for _ in range(8):
        with db.transaction():
            db.execute(
                "insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run)"
                " select gen_random_uuid(), gen_random_uuid(), now(), now(), 1, 1"
                " from generate_series(1, 300)"
            )
    counts = []
    more = True
    while more:
        [(counted, more)] = db.execute("select counted, more from dibs.roll_up(500)").fetchall()
        counts.append(counted)
    assert sum(counts) == 8 * 300
    assert max(counts) <= 1000, "each transaction whole, and no more than was asked for before it"


def test_who_waits_for_a_limit_is_counted_up_to_a_bound(client: dibs.Client, db: Connection) -> None:
    client.limits.set(kind="k", concurrency=1)
    fill(db, "blocked", 12_000)
    db.execute("update dibs.blocked set limit_id = (select id from dibs.limit_rule)")
    [limit] = client.limits.list()
    assert (limit.blocked, limit.blocked_more) == (10_000, True)
    db.execute("delete from dibs.blocked where id > (select id from dibs.blocked order by id offset 9 limit 1)")
    [limit] = client.limits.list()
    assert (limit.blocked, limit.blocked_more) == (10, False)


def test_leases_are_read_once_for_all_workers_and_limits(client: dibs.Client, db: Connection) -> None:
    fill(db, "lease", 5000)
    costs = []
    for count in (1, 40):
        for n in range(count):
            db.execute("select dibs.register_worker(%s)", (f"worker {n}",))
            client.limits.set(kind=f"kind {n}", concurrency=1)
            db.execute("select dibs.set_group('q', %s, '{\"weight\": 2}')", (f"group {n}",))
        costs.append(pages(db, "select * from dibs.workers") + pages(db, "select * from dibs.limits"))
    assert costs[1] < 2 * costs[0] + 500


def test_a_list_is_made_of_short_steps(client: dibs.Client, db: Connection) -> None:
    fill(db, "dead", 3, queue="few")
    fill(db, "ready", MANY)
    assert len(client.find_jobs({"queue": "few"}).jobs) == 3, "behind all that are newer"
    call = calls.operate.find_jobs({"queue": "few"}, 20, None)
    assert pages(db, call.sql, call.args) < 120_000
    assert (
        client.find_jobs({"queue": "few", "states": ["failed", "exhausted"]}, limit=2).jobs
        == client.find_jobs({"queue": "few"}).jobs[:2]
    )
    assert len(client.find_jobs(limit=20_000).jobs) == 20_000
    with pytest.raises(dibs.errors.UnknownQueue):
        client.find_jobs({"queue": "none"})


def test_when_a_backlog_ends_is_estimated_by_a_short_look(client: dibs.Client, db: Connection, clock: Clock) -> None:
    client.queues.set("q")
    clock.move(3600)
    costs = []
    for _ in range(2):
        fill(db, "ready", MANY)
        fill(db, "dead", MANY // 2, at="dibs.now() - interval '1 second'")
        db.execute("vacuum (analyze)")
        costs.append(pages(db, "select * from dibs.drain_estimate('q')"))
    assert costs[1] < 1.5 * costs[0]
    estimate = client.queues.drain_estimate("q")
    assert estimate.waiting == pytest.approx(2 * MANY, rel=0.05)
    assert estimate.leaving > 0


def test_what_succeeded_counts_before_and_after_it_is_rolled_up(client: dibs.Client, clock: Clock) -> None:
    client.queues.set("q")
    clock.freeze()
    clock.move(600)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(100))
    client.complete_many(client.claim("q", 60))
    clock.move(60)
    new = client.queues.drain_estimate("q").leaving
    client.upkeep.roll_up()
    assert new == pytest.approx(60 / 300)
    assert client.queues.drain_estimate("q").leaving == pytest.approx(new)
