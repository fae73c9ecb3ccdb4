"""Statistics: each run counted once, whenever it is committed; and what the numbers say."""

from __future__ import annotations

import math
import random
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.sql.plans import explained

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.conftest import Connect

NOON = datetime(2030, 1, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
def noon(clock: Clock) -> Clock:
    """A clock that stands still at noon, so that minutes and hours do not turn over."""
    clock.freeze(NOON)
    return clock


def run_jobs(client: dibs.Client, count: int, kind: str = "k", queue: str = "q") -> None:
    client.enqueue_many(dibs.NewJob(queue=queue, kind=kind) for _ in range(count))
    while jobs := client.claim(queue, 500):
        client.complete_many(jobs)


def counted(db: psycopg.Connection[Any]) -> tuple[int, int]:
    """Runs in the statistics for good, and runs in the history."""
    row = db.execute(
        "select (select coalesce(sum(succeeded + failed + lost + snoozed + released + cancelled), 0)"
        " from dibs.stat where grain = 'ever'), (select count(*) from dibs.attempt)"
    ).fetchone()
    assert row
    return int(row[0]), row[1]


def test_counts_and_durations_by_queue_and_kind(client: dibs.Client, noon: Clock) -> None:
    client.queues.set("q", max_attempts=1)
    for kind in ("good", "bad", "slept", "unrun", "stopped"):
        client.enqueue("q", kind)
    noon.move(30)
    jobs = {job.kind: job for job in client.claim("q", 5)}
    noon.move(2)
    client.complete(jobs["good"])
    client.fail(jobs["bad"], "no")
    client.snooze(jobs["slept"], 3600)
    client.release(jobs["unrun"])
    client.cancel(jobs["stopped"].id)
    client.fail(jobs["stopped"])
    assert client.upkeep.roll_up() == 5
    told = {s.kind: s for s in client.stats.statistics()}
    good = told["good"]
    assert (good.queue, good.at, good.succeeded, good.runs, good.waits) == ("q", None, 1, 1, 1)
    assert good.run_mean == good.run_max == good.run_p99 == timedelta(seconds=2)
    assert good.wait_mean == good.wait_max == timedelta(seconds=30)
    assert (told["bad"].failed, told["bad"].runs) == (1, 1)
    assert (told["slept"].snoozed, told["slept"].runs, told["slept"].run_mean) == (1, 0, None)
    assert told["unrun"].released == 1
    assert told["stopped"].cancelled == 1
    assert [s.kind for s in client.stats.statistics(kind="good")] == ["good"]
    with pytest.raises(dibs.errors.UnknownQueue):
        client.stats.statistics("no such queue")


def test_what_ends_unrun_is_counted_too(client: dibs.Client, noon: Clock) -> None:
    made = [client.enqueue("q", "k", ttl=10).id for _ in range(3)]
    client.cancel(made[0])
    noon.move(60)
    assert client.upkeep.expire() == 2
    assert client.upkeep.roll_up() == 3
    assert client.upkeep.roll_up() == 0
    [told] = client.stats.statistics("q", "k")
    assert (told.expired, told.cancelled, told.runs) == (2, 1, 0)


def test_a_wait_is_that_of_the_first_run(client: dibs.Client, noon: Clock) -> None:
    client.queues.set("q", backoff=dibs.constant(100))
    client.enqueue("q", "k")
    noon.move(5)
    client.fail(client.claim("q")[0])
    noon.move(100)
    client.complete(client.claim("q")[0])
    client.upkeep.roll_up()
    [told] = client.stats.statistics("q")
    assert (told.failed, told.succeeded, told.runs, told.waits) == (1, 1, 2, 1)
    assert told.wait_max == timedelta(seconds=5)


def test_quantiles_are_right_within_a_bar(client: dibs.Client, noon: Clock) -> None:
    luck = random.Random(7)
    lengths = sorted(luck.lognormvariate(0, 1.5) for _ in range(120))
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", lease=3600) for _ in lengths)
    jobs = client.claim("q", 120)
    passed = 0.0
    for job, length in zip(jobs, lengths, strict=True):
        noon.move(length - passed)
        passed = length
        client.complete(job)
    client.upkeep.roll_up()
    [told] = client.stats.statistics(since=7200)
    for part, found in ((0.5, told.run_p50), (0.95, told.run_p95), (0.99, told.run_p99)):
        assert found
        exact = lengths[math.ceil(part * len(lengths)) - 1]
        assert exact / 1.2 < found.total_seconds() < exact * 1.2


def test_averages_of_hour_day_and_week_and_totals(client: dibs.Client, noon: Clock) -> None:
    for ago, length in ((8 * 24, 64), (3 * 24, 32), (5, 16), (0.5, 8)):
        noon.freeze(NOON - timedelta(hours=ago))
        client.enqueue("q", "k", lease=3600)
        [job] = client.claim("q")
        noon.move(length)
        client.complete(job)
    noon.freeze(NOON)
    client.upkeep.roll_up()
    [told] = client.stats.totals("q", "k")
    assert told.succeeded == 4
    assert told.last_run == told.run_hour == timedelta(seconds=8)
    assert told.run_day == timedelta(seconds=12)
    assert told.run_week == timedelta(seconds=56 / 3)
    assert told.run_mean == timedelta(seconds=30)
    assert told.run_total == timedelta(seconds=120)
    assert told.run_max == timedelta(seconds=64)
    week = client.stats.statistics(since=timedelta(days=7), every=timedelta(days=1))
    assert [s.succeeded for s in week] == [1, 2]
    assert [s.run_max for s in week] == [timedelta(seconds=32), timedelta(seconds=16)]


def test_minutes_and_hours_leave_and_totals_stay(client: dibs.Client, db: psycopg.Connection[Any], noon: Clock) -> None:
    run_jobs(client, 3)
    client.upkeep.roll_up()

    def grains() -> dict[str, int]:
        return dict(db.execute("select grain, sum(succeeded)::int from dibs.stat group by 1").fetchall())

    assert grains() == {"minute": 3, "hour": 3, "ever": 3}
    noon.move(timedelta(days=3))
    client.upkeep.roll_up()
    assert grains() == {"hour": 3, "ever": 3}
    client.stats.set_retention(hours=timedelta(days=10))
    noon.move(timedelta(days=8))
    client.upkeep.roll_up()
    assert grains() == {"ever": 3}
    with pytest.raises(dibs.errors.InvalidPolicy, match="2 hours"):
        client.stats.set_retention(minutes=1)


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "in a savepoint"])
def test_a_late_committer_is_counted_once(
    client: dibs.Client, connect: Connect, db: psycopg.Connection[Any], nested: bool
) -> None:
    """What a savepoint does counts by its transaction: a snapshot lists no subtransactions."""
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(10))
    jobs = client.claim("q", 10)
    slow = connect()
    with slow.transaction():
        slow.execute("select pg_current_xact_id()")
        with slow.transaction(force_rollback=False) if nested else slow.cursor():
            slow.execute("select dibs.complete(%s, %s)", (jobs[0].id, jobs[0].token))
        client.complete_many(jobs[1:])
        assert client.upkeep.roll_up() == 9, "a transaction that stays open holds up nobody else's runs"
        assert client.upkeep.roll_up() == 0
        assert client.stats.totals()[0].succeeded == 9
        assert client.stats.statistics()[0].succeeded == 9
    assert client.upkeep.roll_up() == 1
    assert client.upkeep.roll_up() == 0
    assert client.stats.totals()[0].succeeded == 10
    assert counted(db) == (10, 10)


def test_a_rolled_back_completion_is_not_counted(client: dibs.Client, connect: Connect) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    conn = connect()
    with conn.transaction(force_rollback=True):
        conn.execute("select dibs.complete(%s, %s)", (job.id, job.token))
    assert client.upkeep.roll_up() == 0
    client.complete(job)
    assert client.upkeep.roll_up() == 1


def test_what_ends_in_the_same_transaction_as_a_round_is_counted_once(client: dibs.Client, connect: Connect) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(2))
    before, after = client.claim("q", 2)
    conn = connect()
    with conn.transaction():
        conn.execute("select dibs.complete(%s, %s)", (before.id, before.token))
        assert conn.execute("select counted from dibs.roll_up()").fetchone() == (0,)
        conn.execute("select dibs.complete(%s, %s)", (after.id, after.token))
    assert client.upkeep.roll_up() == 2
    assert client.upkeep.roll_up() == 0


def test_a_round_that_is_rolled_back_counts_nothing(client: dibs.Client, connect: Connect) -> None:
    run_jobs(client, 5)
    conn = connect()
    with conn.transaction(force_rollback=True):
        assert conn.execute("select counted from dibs.roll_up()").fetchone() == (5,)
    assert client.upkeep.roll_up() == 5
    assert client.stats.totals()[0].succeeded == 5


def fill(db: psycopg.Connection[Any], count: int) -> None:
    """Runs in the history, as if jobs had run, wide enough for few to fill a page."""
    db.execute("select dibs.set_queue('q')")
    db.execute(
        "insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, outcome, error)"
        " select dibs._new_id(dibs._id_tick(dibs.now()) + n), gen_random_uuid(), dibs.now(), dibs.now(), 1, 2,"
        " 'failed', repeat('x', 1000) from generate_series(1, %s) as n",
        (count,),
    )


def partition(db: psycopg.Connection[Any]) -> str:
    """The partition of the history with the most rows."""
    row = db.execute(
        "select tableoid::regclass::text from dibs.attempt group by 1 order by count(*) desc limit 1"
    ).fetchone()
    assert row
    return str(row[0])


def test_runs_in_freed_space_are_counted(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    """Runs may land in pages that were counted long ago."""
    fill(db, 8000)
    assert client.upkeep.roll_up() == 8000
    name = partition(db)
    db.execute(f"delete from {name} where ctid < '(100,0)'")
    db.execute(f"vacuum {name}")
    fill(db, 50)
    landed = db.execute(f"select count(*) from {name} where ctid < '(100,0)'")
    assert landed.fetchone() == (50,), "the test needs rows in freed space"
    assert client.upkeep.roll_up() == 50
    assert client.upkeep.roll_up() == 0
    assert counted(db)[0] == 8050


def test_a_table_that_was_rewritten_is_not_counted_again(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    run_jobs(client, 20)
    assert client.upkeep.roll_up() == 20
    db.execute("vacuum full dibs.attempt")
    run_jobs(client, 5)
    assert client.upkeep.roll_up() == 5


def test_rows_that_move_to_a_new_day_are_counted_once(
    client: dibs.Client, db: psycopg.Connection[Any], noon: Clock
) -> None:
    noon.move(timedelta(days=400))  # no day was made so far ahead
    run_jobs(client, 5)
    assert client.upkeep.roll_up() == 5
    run_jobs(client, 3)
    made = {day.outcome for day in client.upkeep.make_days() if day.name.startswith("attempt")}
    assert made == {"made"}
    assert client.upkeep.roll_up() == 3
    assert counted(db) == (8, 8)
    run_jobs(client, 2)
    assert client.upkeep.roll_up() == 2
    assert counted(db) == (10, 10)


def test_history_of_all_ages_is_counted_at_the_first_time(
    client: dibs.Client, db: psycopg.Connection[Any], noon: Clock
) -> None:
    for _ in range(4):
        run_jobs(client, 100)
        noon.move(timedelta(days=2))
        client.upkeep.make_days()
    assert client.upkeep.roll_up() == 400
    assert counted(db) == (400, 400)


def test_a_long_history_is_counted_in_pieces(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.upkeep.roll_up()  # Up to now: the server's other databases have counted transactions, too.
    for _ in range(30):
        fill(db, 100)
    rounds = 0
    total = 0
    more = True
    while more:
        row = db.execute("select counted, more from dibs.roll_up(5)").fetchone()
        assert row
        total, more, rounds = total + row[0], row[1], rounds + 1
    assert total == 3000
    assert rounds > 3
    assert client.upkeep.roll_up() == 0


def test_only_one_counts_at_a_time(client: dibs.Client, connect: Connect, db: psycopg.Connection[Any]) -> None:
    run_jobs(client, 10)
    other = connect()
    with other.transaction():
        assert other.execute("select counted from dibs.roll_up()").fetchone() == (10,)
        assert db.execute("select * from dibs.roll_up()").fetchone() == (None, False)
    assert db.execute("select * from dibs.roll_up()").fetchone() == (0, False)


def test_each_run_is_counted_once_while_many_end(dsn: str, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", max_attempts=100) for _ in range(600))
    client.queues.set("q", backoff=dibs.constant(0))
    ended = threading.Event()

    def work(seed: int) -> None:
        luck = random.Random(seed)
        with dibs.Client(dsn) as mine, psycopg.connect(dsn) as conn:
            while jobs := mine.claim("q", luck.randint(1, 20)):
                how = luck.random()
                if how < 0.2:
                    mine.fail_many(jobs, ["no"] * len(jobs))
                elif how < 0.5:
                    with conn.transaction(), conn.transaction():
                        conn.execute("select pg_current_xact_id()")
                        for job in jobs:
                            conn.execute("select dibs.complete(%s, %s)", (job.id, job.token))
                else:
                    mine.complete_many(jobs)

    def roll(seed: int) -> None:
        with dibs.Client(dsn) as mine:
            while not ended.is_set():
                mine.upkeep.roll_up()

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    rollers = [threading.Thread(target=roll, args=(n,)) for n in range(2)]
    for thread in workers + rollers:
        thread.start()
    for thread in workers:
        thread.join()
    ended.set()
    for thread in rollers:
        thread.join()
    client.upkeep.roll_up()
    stat, history = counted(db)
    assert stat == history > 600
    [told] = client.stats.totals("q")
    assert told.succeeded == 600
    [lately] = client.stats.statistics(since=7200)
    assert (lately.succeeded, lately.waits) == (600, 600)


def test_a_round_with_nothing_new_reads_only_the_last_pages(
    client: dibs.Client, connect: Connect, db: psycopg.Connection[Any]
) -> None:
    """Also while a transaction stays open that began before all of them."""
    slow = connect()
    with slow.transaction():
        slow.execute("select pg_current_xact_id()")
        fill(db, 8000)
        client.upkeep.roll_up()
        db.execute(f"vacuum {partition(db)}")
        with explained(db) as plans:
            db.execute("select dibs.roll_up()")
    reads = [plan for plan in plans if "Bitmap Heap Scan on attempt" in plan.text]
    assert reads
    assert sum(plan.buffers for plan in reads) < 400
    assert not any(plan.scanned_whole for plan in reads)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"since": 1}, "1 minute to 10 years"),
        ({"every": 1}, "a minute or longer"),
        ({"every": 90}, "not of 00:01:30"),
        ({"since": 60, "every": 120}, "within the time asked for"),
    ],
)
def test_senseless_questions_are_refused(shared_client: dibs.Client, asked: dict[str, float], says: str) -> None:
    with pytest.raises(dibs.InvalidArgument, match=says):
        shared_client.stats.statistics(**asked)  # type: ignore[arg-type]


def test_queues_without_history_have_no_statistics(client: dibs.Client) -> None:
    client.queues.set("q", history="failures", backoff=dibs.constant(0))
    client.enqueue("q", "k")
    client.fail(client.claim("q")[0], "no")
    client.complete(client.claim("q")[0])
    client.upkeep.roll_up()
    [told] = client.stats.totals("q")
    assert (told.failed, told.succeeded) == (1, 0)


def test_statistics_are_told_by_queue_by_kind_or_in_one_sum(client: dibs.Client, noon: Clock) -> None:
    client.queues.set("q", max_attempts=1)
    for kind, seconds in (("quick", 1), ("slow", 9)):
        client.enqueue("q", kind)
        [job] = client.claim("q")
        noon.move(seconds)
        client.complete(job)
    noon.move(60)
    client.enqueue("other", "slow")
    client.fail(client.claim("other")[0], "no", final=True)
    client.upkeep.roll_up()
    [whole] = client.stats.statistics(by=())
    assert (whole.queue, whole.kind, whole.at, whole.succeeded, whole.failed, whole.runs) == (None, None, None, 2, 1, 3)
    first, second = client.stats.statistics(by=(), every=60)
    assert (first.succeeded, first.failed, second.succeeded, second.failed) == (2, 0, 0, 1)
    assert first.run_mean == timedelta(seconds=5)
    assert first.run_p50
    assert first.run_p95
    assert timedelta(seconds=0.9) < first.run_p50 < timedelta(seconds=1.2)
    assert timedelta(seconds=7) < first.run_p95 <= timedelta(seconds=9)
    assert (first.at, second.at) == (NOON, NOON + timedelta(minutes=1))
    [hour] = client.stats.statistics(by=(), since=86400, every=3600)
    assert (hour.at, hour.succeeded, hour.failed) == (NOON, 2, 1)
    told = client.stats.statistics(by="queue")
    assert [(s.queue, s.kind, s.succeeded, s.failed) for s in told] == [("other", None, 0, 1), ("q", None, 2, 0)]
    told = client.stats.statistics("q", "slow", by=["kind"])
    assert [(s.queue, s.kind, s.succeeded) for s in told] == [(None, "slow", 1)]
    by_both = [(s.queue, s.kind, s.at) for s in client.stats.statistics(by=("kind", "queue"), since=120, every=120)]
    assert by_both == [("other", "slow", NOON), ("q", "quick", NOON), ("q", "slow", NOON)]
    assert client.stats.statistics("other", "quick", by=()) == []


def test_statistics_of_a_sum_are_those_of_its_parts(
    client: dibs.Client, db: psycopg.Connection[Any], noon: Clock
) -> None:
    """Also quantiles: the histograms of minutes, kinds and queues are added."""
    luck = random.Random(5)
    lengths: list[float] = []
    for n in range(40):
        client.enqueue(f"q{n % 3}", f"k{n % 2}", lease=3600)
        [job] = client.claim(f"q{n % 3}")
        lengths.append(luck.lognormvariate(0, 1.5))
        noon.move(lengths[-1])
        client.complete(job)
    client.upkeep.roll_up()
    [whole] = client.stats.statistics(by=())
    assert whole.run_p95
    exact = sorted(lengths)[math.ceil(0.95 * len(lengths)) - 1]
    assert exact / 1.2 < whole.run_p95.total_seconds() < exact * 1.2
    for by in ((), ("queue",), ("kind",), ("queue", "kind")):
        parts = client.stats.statistics(by=by, every=60)
        assert sum(s.succeeded for s in parts) == 40
        assert sum((s.run_mean * s.runs for s in parts if s.run_mean), timedelta()).total_seconds() == pytest.approx(
            sum(lengths), rel=1e-4
        )


def test_the_first_period_counts_whole_and_periods_are_aligned(client: dibs.Client, noon: Clock) -> None:
    for _ in range(5):  # At noon, 12:05, 12:10, 12:15 and 12:20.
        run_jobs(client, 1)
        noon.move(300)
    noon.freeze(NOON + timedelta(minutes=27, seconds=30))
    client.upkeep.roll_up()
    assert [s.succeeded for s in client.stats.statistics(since=timedelta(minutes=20))] == [3]
    told = client.stats.statistics(since=timedelta(minutes=20), every=timedelta(minutes=10))
    assert [(s.at, s.succeeded) for s in told] == [
        (NOON, 2), (NOON + timedelta(minutes=10), 2), (NOON + timedelta(minutes=20), 1)
    ]  # fmt: skip


def test_periods_that_are_not_whole_hours_are_counted_from_minutes(client: dibs.Client, noon: Clock) -> None:
    noon.freeze(NOON - timedelta(minutes=1))
    for _ in range(6):  # Every half an hour from 11:59 on.
        run_jobs(client, 1)
        noon.move(1800)
    client.upkeep.roll_up()
    told = client.stats.statistics(since=timedelta(hours=6), every=timedelta(minutes=90))
    assert [(s.at, s.succeeded) for s in told] == [
        (NOON - timedelta(minutes=90), 1), (NOON, 3), (NOON + timedelta(minutes=90), 2)
    ]  # fmt: skip


def test_hours_are_read_for_long_periods_and_when_minutes_are_gone(
    client: dibs.Client, db: psycopg.Connection[Any], noon: Clock
) -> None:
    run_jobs(client, 1)
    client.upkeep.roll_up()
    db.execute("update dibs.stat set succeeded = 10 where grain = 'hour'")
    two_days, week = timedelta(days=2), timedelta(days=7)
    hour = timedelta(hours=1)
    assert [s.succeeded for s in client.stats.statistics(since=two_days)] == [1]
    assert [s.succeeded for s in client.stats.statistics(since=week)] == [10]
    assert [s.succeeded for s in client.stats.statistics(since=hour, every=hour)] == [10]
    assert [s.succeeded for s in client.stats.statistics(since=week, every=hour / 2)] == [1]


@pytest.mark.parametrize(
    ("by", "says", "hint"),
    [
        ("color", "cannot be grouped by 'color'", "the choices are queue and kind"),
        (("queue", "knid"), "cannot be grouped by 'knid'", "did you mean 'kind'"),
        (("kind", "kind"), '"by" names kind more than once', "the choices are queue and kind"),
        ((None,), "cannot be grouped by null", "the choices are queue and kind"),
    ],
)
def test_what_statistics_cannot_be_grouped_by_is_refused(
    shared_client: dibs.Client, by: Any, says: str, hint: str
) -> None:
    with pytest.raises(dibs.InvalidArgument, match=says) as refused:
        shared_client.stats.statistics(by=by)
    assert hint in str(refused.value.hint)


def test_what_runs_is_told_with_who_holds_it(client: dibs.Client) -> None:
    made = client.enqueue("q", "k")
    client.enqueue("q", "waits")
    [job] = client.claim("q")
    client.progress(job, 0.5)
    [held] = client.workers.running()
    assert (held.id, held.queue, held.kind, held.worker, held.attempt) == (made.id, "q", "k", None, 1)
    assert (held.progress, held.cancel_requested) == ({"done": 0.5, "of": 1}, False)
    assert client.workers.running(worker=7) == []
