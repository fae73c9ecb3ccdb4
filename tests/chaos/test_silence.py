"""A connection that goes silent: nothing is closed, nothing answers. A worker fences, comes back and ends in time."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from dibs.db.connection import reachable
from dibs.db.database import Database
from tests.chaos.proxy import Proxy
from tests.chaos.working import working
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LEASE = 3.0
LOG = """
import functools
import time
from dibs.worker import pools

# A claim that nothing answers is repeated over another connection after 3 s instead of 10.
pools.AsyncDatabase = functools.partial(pools.AsyncDatabase, patience=9.0)

@app.task(name="logs", retry=again)
async def logs(name: str) -> None:
    with open(name, "a") as log:
        while True:
            log.write(f"{time.time()}\\n")
            log.flush()
            await asyncio.sleep(0.05)
"""


def times(file: Path) -> list[float]:
    return [float(line) for line in file.read_text().split()] if file.exists() else []


def test_a_job_never_runs_on_two_workers_though_one_hears_nothing(
    tmp_path: Path, dsn: str, client: dibs.Client
) -> None:
    """The worker stops its job before its lease ends, works again over new connections, and ends on SIGTERM."""
    client.queues.set("q", lease=LEASE, max_losses=100)
    here, there = tmp_path / "here", tmp_path / "there"
    with Proxy(dsn) as proxy:
        here.mkdir()
        there.mkdir()
        with working(here, f"{proxy.dsn}&connect_timeout=2", 1, "--grace", "10", app=LOG) as (cut_off,):
            client.enqueue("q", "logs", {"name": "log"}, priority=9)
            wait_until(lambda: times(here / "log"), what="it runs behind the proxy")
            with working(there, dsn, 1, "--grace", "0", app=LOG):
                proxy.go_silent(for_new=True)
                wait_until(lambda: times(there / "log"), timeout=30, what="it runs elsewhere")
                last, first = times(here / "log")[-1], times(there / "log")[0]
                assert last < first
                proxy.speak()
                made = [client.enqueue("q", "naps", {"seconds": 0.01}) for _ in range(5)]
                wait_until(
                    lambda: {s.state for s in client.status_many([m.id for m in made])} == {"succeeded"},
                    what="the naps ended",
                )
                assert times(here / "log")[-1] == last
            client.cancel(client.find_jobs({"kind": "logs"}).jobs[0].id)
            again = client.enqueue("q", "naps", {"seconds": 0.01})
            wait_until(
                lambda: client.status(again.id).state is dibs.State.SUCCEEDED,
                timeout=60,
                what="it works over new connections",
            )
            proxy.go_silent(for_new=True)
            began = time.monotonic()
            cut_off.send_signal(signal.SIGTERM)
            assert cut_off.wait(30) == 0
            assert time.monotonic() - began < 20


def test_a_lost_connection_is_told_as_such_while_many_files_are_open(dsn: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2000, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with Proxy(dsn) as proxy:
            proxy.go_silent(for_new=True)
            with pytest.raises(dibs.ConnectionLost):
                Database(proxy.dsn, patience=0.1).connect()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answers(client: dibs.Client) -> bool:
    try:
        return client.enqueue("q", "k").is_new
    except dibs.ConnectionLost:
        return False


def seconds_until_given_up(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(dibs.ConnectionLost):
        call()
    return time.monotonic() - began


def test_a_client_gives_up_when_its_patience_ends(dsn: str) -> None:
    with Proxy(dsn) as proxy, dibs.Client(proxy.dsn, patience=1) as client, ThreadPoolExecutor() as threads:
        client.enqueue("q", "k")
        proxy.go_silent(for_new=True)
        calls = (
            lambda: client.enqueue("q", "k"),
            lambda: client.queues.pause("q"),
            lambda: dibs.Client(proxy.dsn, patience=1).__enter__(),
        )
        assert max(threads.map(seconds_until_given_up, calls)) < 8
        proxy.speak()
        wait_until(lambda: answers(client), what="it comes back")


async def test_an_async_client_takes_another_connection(dsn: str) -> None:
    """The old ones stay silent, as behind a firewall that forgot them; new ones work."""
    with Proxy(dsn) as proxy:
        async with dibs.AsyncClient(proxy.dsn, patience=6) as client:
            await asyncio.gather(*(client.enqueue("q", "k") for _ in range(5)))
            proxy.go_silent()
            began = time.monotonic()
            await asyncio.gather(*(client.enqueue("q", "k") for _ in range(5)))
            assert time.monotonic() - began < 8
            assert (await client.queues.depth("q")).ready == 10


def test_what_takes_long_is_not_silence(dsn: str, client: dibs.Client, connect: Any) -> None:
    """A statement of a handler's own transaction may take as long as it likes."""
    database = Database(dsn, patience=1.0)
    with database.transaction() as conn:
        assert conn.execute("select 1 from pg_sleep(1.5)").fetchone() == (1,)
    database.close()


def test_a_statement_that_was_given_up_does_not_happen_later(dsn: str, connect: Any) -> None:
    """It waits for a lock: when its client gives up it is cancelled, and no lease is left to nobody."""
    holder = connect()
    with dibs.Client(dsn, patience=1) as client:
        client.enqueue("q", "k")
        with holder.transaction():
            holder.execute("lock table dibs.lease in exclusive mode")
            with pytest.raises(dibs.ConnectionLost):
                client.claim("q", lease=timedelta(hours=1))
        waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        wait_until(lambda: not holder.execute(waiting).fetchall(), what="nobody waits for the lock")
        assert client.queues.depth("q").running == 0


def test_timeouts_are_set_unless_the_dsn_says_otherwise(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    told = psycopg.conninfo.conninfo_to_dict(reachable(f"{dsn}&tcp_user_timeout=7&connect_timeout=30", 5))
    assert (told["tcp_user_timeout"], told["connect_timeout"], told["keepalives_idle"]) == ("7", "30", "10")
    assert psycopg.conninfo.conninfo_to_dict(reachable(dsn, 0.1))["connect_timeout"] == "2"
