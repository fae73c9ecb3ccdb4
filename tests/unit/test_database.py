"""A database's pool: how it is opened, closed and inherited, and what is repeated."""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import UUID

import pytest

from dibs import errors
from dibs.client.enqueue_async import AsyncEnqueuer
from dibs.db import calls
from dibs.db import database as module
from dibs.db.database import Database
from dibs.db.database_async import AsyncDatabase
from dibs.errors import ClientClosed, ConnectionLost
from dibs.ids import id_time

pytestmark = pytest.mark.once


class Pool:
    """A pool that only counts how often it is opened and closed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.opened = self.closed = 0

    def open(self) -> None:
        self.opened += 1

    def close(self, _: float) -> None:
        self.closed += 1


def test_a_forked_child_does_not_close_its_parents_pool() -> None:
    database, pool = Database("postgresql:///nowhere"), Pool()
    database._pool, database._pid = pool, os.getpid() + 1  # type: ignore[assignment]
    database.close()
    assert pool.closed == 0


def test_a_pool_that_is_opened_while_its_database_is_closed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Pool] = []

    def make(*_: Any, **__: Any) -> Pool:
        made.append(Pool())
        database.close()
        return made[0]

    monkeypatch.setattr(module, "ConnectionPool", make)
    database = Database("postgresql:///nowhere")
    database._is_checked = True
    with pytest.raises(ClientClosed):
        database.connect()
    assert (made[0].opened, made[0].closed, database._pool) == (1, 1, None)


def test_a_call_that_may_not_be_repeated_waits_until_it_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database("postgresql:///nowhere", patience=5)
    tries: list[int] = []

    def reopen() -> Any:
        tries.append(len(tries))
        if len(tries) == 1:
            raise ConnectionLost("the database is away")
        raise errors.LoginRefused("it is back")

    monkeypatch.setattr(database, "_reopen", reopen)
    with pytest.raises(errors.LoginRefused):
        database.run(calls.operate.drop_queue("q"))
    assert len(tries) == 2


async def test_ids_are_not_made_by_an_old_clock_while_the_time_is_learned() -> None:
    database = AsyncDatabase("postgresql:///nowhere")
    enqueuer = AsyncEnqueuer(database)

    async def learn_time() -> None:
        enqueuer._maker()  # As another task does while this one waits for the answer.
        database.ahead = 3600.0

    database.learn_time = learn_time  # type: ignore[method-assign]
    assert await enqueuer._relearn_time(None)
    assert id_time(UUID(enqueuer._maker().make_digits())) > time.time() + 3000
