"""Workers are killed, stopped and cut off from the database, and it goes away: nothing is lost or recorded twice."""

from __future__ import annotations

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg

import dibs
from tests.chaos.pgbouncer import PgBouncer
from tests.chaos.working import working
from tests.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from dibs.embedded import Server

LEASE = 2.0


def enqueue(client: dibs.Client, kind: str, count: int, **options: Any) -> None:
    client.queues.set("q", lease=LEASE, max_losses=1000)
    payload = {"seconds": options.pop("seconds")} if "seconds" in options else None
    client.enqueue_many(dibs.NewJob(queue="q", kind=kind, payload=payload or {"n": n}, **options) for n in range(count))


def all_ended(client: dibs.Client) -> bool:
    depth = client.queues.depth("q")
    return depth.waiting == depth.running == 0


def waiting_below(client: dibs.Client, count: int) -> Callable[[], bool]:
    return lambda: client.queues.depth("q").waiting < count


def passed(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def stop_with_jobs_in_hand(
    client: dibs.Client, db: psycopg.Connection[Any], worker: subprocess.Popen[str]
) -> tuple[int, int]:
    """Stop a worker (SIGSTOP) in the middle of naps, whose ends cannot be on their way then.

    Returns its number, and how many naps were enqueued until it had one.
    """
    found: list[int] = []
    count = 0
    there = "select from dibs.workers as w where w.facts -> 'pid' = to_jsonb(%s::integer)"
    # Before that, naps would only pile up for the others, who then had no room for what is lost.
    wait_until(lambda: db.execute(there, (worker.pid,)).rowcount, timeout=60, what="it is registered")

    def naps() -> bool:
        nonlocal count
        enqueue(client, "naps", 10, seconds=1, priority=9)
        count += 10
        worker.send_signal(signal.SIGSTOP)
        found[:] = [
            number
            for (number,) in db.execute(
                "select distinct j.worker from dibs.jobs as j join dibs.workers as w on w.id = j.worker"
                " where j.kind = 'naps' and j.state = 'running' and w.facts -> 'pid' = to_jsonb(%s::integer)"
                " and j.claimed_at > now() - interval '500 milliseconds'",
                (worker.pid,),
            )
        ]
        if not found:
            worker.send_signal(signal.SIGCONT)
        return bool(found)

    wait_until(naps, timeout=60, what="it holds jobs")
    return found[0], count


def check_record(db: psycopg.Connection[Any], count: int) -> None:
    """Every job succeeded, once, in the record."""
    succeeded, jobs = db.execute(
        "select count(*), count(distinct id) from dibs.attempts where outcome = 'succeeded'"
    ).fetchone() or (0, 0)
    assert (succeeded, jobs) == (count, count)
    assert db.execute("select count(*) from dibs.jobs where state <> 'succeeded'").fetchone() == (0,)


def test_killing_one_of_two_workers_in_the_middle(tmp_path: Path, dsn: str, db: psycopg.Connection[Any]) -> None:
    with dibs.Client(dsn) as client:
        enqueue(client, "noop", 6_000)
        with working(tmp_path, dsn, 2) as (victim, _):
            number, naps = stop_with_jobs_in_hand(client, db, victim)
            victim.kill()
            killed = db.execute("select now()").fetchone()
            wait_until(lambda: all_ended(client), timeout=90, what="all jobs ended")
    check_record(db, 6_000 + naps)
    assert killed
    # What the dead one held was taken back, and run by the other, within a lease and two seconds.
    lost, again = db.execute(
        "select max(l.ended_at), max(s.claimed_at) from dibs.attempts as l"
        " join dibs.attempts as s on s.id = l.id and s.run = l.run + 1 where l.outcome = 'lost' and l.worker = %s",
        (number,),
    ).fetchone() or (None, None)
    assert lost is not None
    assert (again - killed[0]).total_seconds() < LEASE + 2


def test_a_stopped_worker_is_refused_when_it_comes_back(tmp_path: Path, dsn: str, db: psycopg.Connection[Any]) -> None:
    """Effects in ``context().transaction()`` happen exactly once over the whole run."""
    db.execute("create table effect (n integer)")
    with dibs.Client(dsn) as client:
        enqueue(client, "writes", 1500)
        with working(tmp_path, dsn, 2) as (stopped, _):
            _, naps = stop_with_jobs_in_hand(client, db, stopped)
            # What it completes just then stays locked by its open transaction, so nothing says that all is taken back.
            wait_until(passed(2 * LEASE), what="two leases are over")
            stopped.send_signal(signal.SIGCONT)
            wait_until(lambda: all_ended(client), timeout=90, what="all jobs ended")
    check_record(db, 1500 + naps)
    assert db.execute("select count(*), count(distinct n) from effect").fetchone() == (1500, 1500)
    assert db.execute("select count(*) > 0 from dibs.attempts where outcome = 'lost'").fetchone() == (True,)


def test_the_server_is_restarted_three_times(tmp_path: Path, own_server: Server) -> None:
    """The worker goes on by itself, and nothing is lost."""
    dsn = own_server.dsn()
    with dibs.Client(dsn, patience=60) as client:
        enqueue(client, "noop", 6_000)
        with working(tmp_path, dsn, 1, "--slots", "20"):
            for left in (5_000, 3_000, 1_000):
                wait_until(waiting_below(client, left), timeout=60, what=f"fewer than {left} wait")
                own_server.stop("immediate")
                own_server.start()
            wait_until(lambda: all_ended(client), timeout=90, what="all jobs ended")
        with psycopg.connect(dsn, autocommit=True) as db:
            check_record(db, 6_000)


def test_backends_are_terminated_at_random(tmp_path: Path, dsn: str, db: psycopg.Connection[Any]) -> None:
    mine = db.info.backend_pid
    with dibs.Client(dsn, patience=60) as client, working(tmp_path, dsn, 2):
        enqueue(client, "noop", 5_000)
        until, enqueued = time.monotonic() + 3, 5_000
        while time.monotonic() < until:
            pids = [
                pid
                for (pid,) in db.execute(
                    "select pid from pg_stat_activity where datname = current_database() and pid <> %s", (mine,)
                )
            ]
            db.execute("select pg_terminate_backend(%s)", (random.choice(pids),))
            enqueue(client, "noop", 500)
            enqueued += 500
            wait_until(passed(0.25), what="a quarter of a second is over")
        wait_until(lambda: all_ended(client), timeout=90, what="all jobs ended")
        check_record(db, enqueued)


def test_sigterm_with_many_running_and_prefetched(tmp_path: Path, dsn: str, db: psycopg.Connection[Any]) -> None:
    """Running jobs finish, the others are claimable at once and uncharged."""
    with dibs.Client(dsn) as client, working(tmp_path, dsn, 1, "--slots", "100") as (worker,):
        # Short ones first, so that it learns to take many ahead; then it holds far more than it can run.
        enqueue(client, "naps", 10_000, seconds=0.001)
        wait_until(lambda: client.queues.depth("q").ready < 5_000, what="it is at full speed")
        enqueue(client, "naps", 2_000, seconds=1.0, priority=9)
        wait_until(lambda: client.queues.depth("q").running >= 400, what="it holds more than it runs")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        depth = client.queues.depth("q")
        assert depth.running == depth.dead == depth.scheduled == 0
        charged = db.execute("select count(*) from dibs.jobs where state = 'ready' and attempts > 0").fetchone()
        assert charged == (0,)
        released = db.execute("select count(*) from dibs.attempts where outcome = 'released'").fetchone()
        assert released
        assert released[0] >= 10  # how many depends on how many short ones ended before the signal was heard
        assert db.execute("select count(*) from dibs.attempts where outcome in ('lost', 'failed')").fetchone() == (0,)
        assert len(client.claim("q", 10)) == 10


def test_a_job_longer_than_its_lease_runs_once(tmp_path: Path, dsn: str, db: psycopg.Connection[Any]) -> None:
    """Liveness is a lease that is renewed, not an age."""
    with dibs.Client(dsn) as client, working(tmp_path, dsn, 2):
        client.queues.set("q", lease=0.5)
        client.enqueue_many(dibs.NewJob(queue="q", kind="naps", payload={"seconds": 1.5}) for _ in range(20))
        wait_until(lambda: db.execute("select count(*) from dibs.attempts").fetchone() == (20,), what="all ended")
        check_record(db, 20)


def test_everything_works_through_a_transaction_pooler(tmp_path: Path, dsn: str, db: psycopg.Connection[Any]) -> None:
    """PgBouncer in transaction mode with two connections for everybody: by polling alone."""
    db.execute("create table effect (n integer)")
    with PgBouncer(dsn, pool_size=2) as pooled, dibs.Client(pooled.dsn) as client:
        enqueue(client, "noop", 3_000)
        enqueue(client, "writes", 100)
        with working(tmp_path, pooled.dsn, 2):
            wait_until(lambda: all_ended(client), timeout=60, what="all jobs ended")
            made = client.enqueue("q", "noop", {"n": 1}, delay=1)
            wait_until(
                lambda: client.status(made.id).state is dibs.State.SUCCEEDED, what="a later one is found by polling"
            )
        check_record(db, 3_101)
        assert db.execute("select count(*), count(distinct n) from effect").fetchone() == (100, 100)
        message = client.message_queue("mail").send(b"hello")
        [received] = client.message_queue("mail").receive(1, wait=5)
        assert (received.id, received.body) == (message.id, b"hello")
        received.ack()


def test_enqueueing_in_a_transaction_needs_no_second_connection(dsn: str, db: psycopg.Connection[Any]) -> None:
    """First requests of a web application, all at once, behind a pooler that has one connection for them."""
    with PgBouncer(dsn, pool_size=1) as pooled:
        client = dibs.Client(pooled.dsn, patience=2)

        def request(n: int) -> None:
            with psycopg.connect(pooled.dsn, prepare_threshold=None) as conn:
                conn.execute("select 'what the request writes'")
                client.enqueue("q", "noop", {"n": n}, conn=conn)

        with ThreadPoolExecutor(20) as pool:
            list(pool.map(request, range(20)))
    assert db.execute("select count(*) from dibs.ready").fetchone() == (20,)
