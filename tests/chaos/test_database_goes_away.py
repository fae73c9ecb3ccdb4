"""The database goes away and comes back, answers are lost, processes are killed: nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import pytest

import dibs
from tests.chaos.proxy import Proxy
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from dibs.embedded import Server
    from dibs.testing import Clock
    from tests.conftest import Connect


def test_a_waiting_receiver_and_a_producer_survive_restarts(own_server: Server) -> None:
    """A restart of the database must not leave a client behind."""
    received: list[Any] = []
    sent = 0
    with dibs.Client(own_server.dsn(), patience=60) as producer, dibs.Client(own_server.dsn(), patience=60) as consumer:
        stop = threading.Event()

        def receive() -> None:
            queue = consumer.message_queue("q")
            while not stop.is_set():
                for message in queue.receive(10, wait=1):
                    received.append(message.body)
                    message.ack()

        thread = threading.Thread(target=receive)
        thread.start()
        modes: list[Literal["fast", "immediate"]] = ["fast", "immediate", "fast"]
        for mode in modes:
            for _ in range(20):
                producer.enqueue("q", "k", sent)
                sent += 1
            own_server.stop(mode)
            own_server.start()
        producer.enqueue("q", "k", sent)
        wait_until(lambda: len(set(received)) == sent + 1, timeout=60, what="every message was received")
        stop.set()
        thread.join()
        assert set(received) == set(range(sent + 1))
        assert producer.queues.depth("q").waiting == 0


async def test_the_async_client_survives_a_restart(own_server: Server) -> None:
    async with dibs.AsyncClient(own_server.dsn(), patience=60) as client:
        await client.enqueue("q", "k", 1)
        own_server.stop()
        own_server.start()
        await client.enqueue("q", "k", 2)
        assert [j.payload for j in await client.claim("q", 10, wait=10)] == [1, 2]


def test_a_client_without_patience_says_so(own_server: Server) -> None:
    with dibs.Client(own_server.dsn(), patience=0.2) as client:
        client.enqueue("q", "k")
        own_server.stop()
        with pytest.raises(dibs.ConnectionLost) as caught:
            client.enqueue("q", "k")
        assert not isinstance(caught.value, dibs.errors.PoolExhausted)
        with pytest.raises(dibs.ConnectionLost), dibs.Client(own_server.dsn(), patience=0.2):
            pass
        own_server.start()
        wait_until(lambda: client.queues.depth("q").ready == 1, what="it answers again")


def test_a_lost_answer_to_an_enqueue_makes_no_second_job(dsn: str) -> None:
    """A lost answer to COMMIT is unknown, not failed; repeating with the same id adds nothing."""
    with Proxy(dsn) as proxy, dibs.Client(proxy.dsn, patience=30) as client:
        client.enqueue("q", "k", "first")
        proxy.lose_the_answer_to(b"lost-answer")
        made = client.enqueue("q", "k", "lost-answer")
        assert proxy.lost.is_set()
        assert made.is_new
        assert client.queues.depth("q").ready == 2
        proxy.lose_the_answer_to(b"bulk-marker")
        many = client.enqueue_many(dibs.NewJob(queue="q", payload=f"bulk-marker {n}") for n in range(3000))
        assert proxy.lost.is_set()
        assert len({m.id for m in many}) == 3000
        assert client.queues.depth("q").ready == 3002


def test_a_lost_answer_to_a_bulk_enqueue_with_keys_adds_nothing(dsn: str) -> None:
    """The repeat tells what it made from what was there, also with a key twice and in a full queue."""
    with Proxy(dsn) as proxy, dibs.Client(proxy.dsn, patience=30) as client:
        client.queues.set("q", max_depth=2000)
        there = client.enqueue("q", "k", dedup_key="0")
        for count in (900, 1500):
            proxy.lose_the_answer_to(b"keyed-marker")
            made = client.enqueue_many(
                dibs.NewJob(
                    queue="q", payload=f"keyed-marker {n}", dedup_key=f"{n % 600}", on_duplicate="keep", dedup_for=600
                )
                for n in range(count)
            )
            assert proxy.lost.is_set()
            assert [m.id for m in made] == [made[n % 600].id for n in range(count)]
            assert made[0] == dibs.types.Enqueued(there.id, dibs.Answer.DUPLICATE)
            assert client.queues.depth("q").ready == 600
        proxy.lose_the_answer_to(b"refused-marker")
        assert client.enqueue("q", "k", "refused-marker", dedup_key="new", on_duplicate="refuse").is_new
        proxy.lose_the_answer_to(b"debounced-marker")
        new = client.enqueue("q", "k", "debounced-marker", dedup_key="new", on_duplicate="replace")
        assert proxy.lost.is_set()
        assert new.is_new
        depth = client.queues.depth("q")
        assert (depth.ready, depth.cancelled) == (601, 1)


def test_lost_answers_to_a_claim_lease_nothing_twice(dsn: str) -> None:
    """The caller makes the token, and a repetition returns what it holds: no lease that nobody knows of, no charge."""
    with Proxy(dsn) as proxy, dibs.Client(proxy.dsn, patience=30) as client:
        made = client.enqueue_many(dibs.NewJob(queue="q", payload=n) for n in range(40))
        proxy.lose_the_answer_to(b"dibs.claim", times=3)
        jobs = client.claim("q", 10)
        assert proxy.losses == 0
        assert [job.id for job in jobs] == [m.id for m in made[:10]]
        assert len({job.token for job in jobs}) == 1
        assert {(job.payload, job.attempt, job.losses) for job in jobs} == {(n, 1, 0) for n in range(10)}
        depth = client.queues.depth("q")
        assert (depth.running, depth.ready) == (10, 30)
        client.complete_many(jobs)
        assert client.claim("q", 1)[0].id == made[10].id


def test_a_lost_answer_to_a_completion_is_already(dsn: str) -> None:
    with Proxy(dsn) as proxy, dibs.Client(proxy.dsn, patience=30) as client:
        client.enqueue("q", "k")
        [job] = client.claim("q")
        proxy.lose_the_answer_to(b"lost-result")
        assert client.complete(job, "lost-result") == "already"
        assert proxy.lost.is_set()
        shown = client.show(job.id)
        assert shown
        assert [a["result"] for a in shown["attempts"]] == ["lost-result"]


def test_terminated_backends_double_nothing(dsn: str, connect: Connect, db: psycopg.Connection[Any]) -> None:
    killer = connect()
    ours = [db.info.backend_pid, killer.info.backend_pid]
    kill = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
        " and backend_type = 'client backend' and pid <> all (%s)"
    )
    made: list[dibs.types.Enqueued] = []
    killed: list[int] = []
    with dibs.Client(dsn, patience=60) as client, ThreadPoolExecutor(1) as beside:
        for _ in range(8):
            shot = beside.submit(lambda: killer.execute(kill, (ours,)).fetchone())
            made += [client.enqueue("q", "k", len(made) + n) for n in range(20)]
            killed += shot.result() or ()
    assert sum(killed) >= 4
    assert all(m.is_new for m in made)
    row = db.execute("select count(*), count(distinct payload) from dibs.job").fetchone()
    assert row == (len(made), len(made))


CLAIM_AND_HANG = """
import sys, time, dibs
client = dibs.Client(sys.argv[1])
[job] = client.claim("q")
print(job.id, flush=True)
time.sleep(600)
"""


def test_a_killed_worker_loses_its_lease_and_not_its_job(dsn: str, client: dibs.Client, clock: Clock) -> None:
    made = client.enqueue("q", "k")
    with subprocess.Popen([sys.executable, "-c", CLAIM_AND_HANG, dsn], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        assert worker.stdout.readline().strip() == str(made.id)
        worker.send_signal(signal.SIGKILL)
    assert client.status(made.id).state is dibs.State.RUNNING
    clock.move(31)
    [job] = client.claim("q", wait=10)
    assert (job.id, job.attempt) == (made.id, 2)


def test_two_starts_of_one_name_are_two_workers(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    """A name used again hides no orphan."""
    first, second = (
        db.execute("select number, worker from dibs.register_worker('host-1')").fetchone() for _ in range(2)
    )
    assert first
    assert second
    assert first != second
    client.enqueue("q", "k")
    client.claim("q", worker=first[1])
    running = dict(db.execute("select id, running from dibs.workers").fetchall())
    assert running == {first[0]: 1, second[0]: 0}


def test_a_retry_is_not_repeated_after_a_lost_answer(dsn: str) -> None:
    with Proxy(dsn) as proxy, dibs.Client(proxy.dsn, patience=10) as client:
        client.enqueue_many(dibs.NewJob(queue="q") for _ in range(6))
        for job in client.claim("q", 6):
            client.fail(job, final=True)
        proxy.lose_the_answer_to(b"dibs.retry")
        with pytest.raises(dibs.ConnectionLost):
            client.retry({"queue": "q"}, max=3)
        wait_until(lambda: client.queues.depth("q").ready == 3, what="half of them are back")


CHANGES: dict[str, Callable[[dibs.Client], object]] = {
    "dibs.delete": lambda client: client.delete({"queue": "q"}, max=1),
    "dibs.purge": lambda client: client.queues.purge("waiting", max=1),
    "dibs.move": lambda client: client.move({"queue": "q"}, "waiting", max=1),
    "dibs.cancel_where": lambda client: client.cancel_where({"queue": "waiting"}, max=1),
    "dibs.drop_group": lambda client: client.groups.drop("q", "a"),
}


@pytest.mark.parametrize("function", CHANGES)
def test_a_change_is_not_repeated_after_a_lost_answer(dsn: str, function: str) -> None:
    """A second step would change another job than the first, beyond the maximum; a second drop finds nothing."""
    with Proxy(dsn) as proxy, dibs.Client(proxy.dsn, patience=10) as client:
        client.groups.set("q", "a", weight=2)
        client.enqueue_many(dibs.NewJob(queue=queue) for queue in ["q"] * 3 + ["waiting"] * 3)
        for job in client.claim("q", 3):
            client.fail(job, final=True)
        before = states(client)
        proxy.lose_the_answer_to(function.encode())
        with pytest.raises(dibs.ConnectionLost):
            CHANGES[function](client)
        changed = 0 if function == "dibs.drop_group" else 1
        wait_until(lambda: (before - states(client)).total() == changed, what="one job has changed")


def states(client: dibs.Client) -> Counter[tuple[str, str]]:
    return Counter((job.queue, str(job.state)) for job in client.find_jobs().jobs)


async def test_a_cancelled_claim_leaves_nothing_leased(dsn: str) -> None:
    async with dibs.AsyncClient(dsn) as client:
        await client.enqueue_many(dibs.NewJob(queue="q") for _ in range(300))
        for n in range(20):
            claiming = asyncio.create_task(client.claim("q", 300))
            for _ in range(n):
                await asyncio.sleep(0)
            claiming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await client.release_many(await claiming)
        depth = await client.queues.depth("q")
        assert (depth.running, depth.ready) == (0, 300)


FORK = """
import os, sys, dibs
client = dibs.Client(sys.argv[1])
client.enqueue("q", "k", "parent")
child = os.fork()
mine = [client.enqueue("q", "k", (bool(child), n)) for n in range(50)]
assert all(client.status(m.id).state == "ready" for m in mine)
if child == 0:
    os._exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
client.close()
"""


def test_a_forked_child_makes_connections_of_its_own(dsn: str, client: dibs.Client) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, dsn], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert client.queues.depth("q").ready == 101
