"""A client whose calls are bounded: in time, and to reading."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

import dibs
from dibs.client.bounded import BoundedClient
from dibs.db import calls


async def test_the_database_refuses_what_would_change_something(dsn: str, client: dibs.Client) -> None:
    made = client.enqueue("q", "k")
    async with BoundedClient(dsn, timeout=5, read_only=True) as bounded:
        assert (await bounded.status(made.id)).state is dibs.State.READY
        with pytest.raises(dibs.errors.ServerError) as refused:
            await bounded.cancel(made.id)
        assert refused.value.sqlstate == "25006"
        assert (await bounded.status(made.id)).state is dibs.State.READY


async def test_the_database_stops_what_takes_too_long(
    dsn: str, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("q", "k")
    with db.transaction():
        db.execute("lock table dibs.job")
        async with BoundedClient(dsn, timeout=0.2, read_only=True) as bounded:
            began = time.monotonic()
            with pytest.raises(dibs.errors.ServerError) as stopped:
                await bounded.find_jobs()
            assert stopped.value.sqlstate == "57014"
            assert time.monotonic() - began < 5


def test_the_shortest_timeout_is_not_none() -> None:
    assert calls.schema.bound(0.0001, True).args[0] == "1"  # In milliseconds, where 0 means no timeout.


async def test_the_actor_is_set_once_for_each_change(
    dsn: str, client: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    executed = psycopg.AsyncCursor.execute

    async def execute(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        sent.append(str(query))
        return await executed(self, query, *args, **options)

    made = client.enqueue("q", "k")
    async with BoundedClient(dsn, timeout=5, read_only=False) as bounded:
        await bounded.now()
        monkeypatch.setattr(psycopg.AsyncCursor, "execute", execute)
        with dibs.acting_as("erin"):
            await bounded.cancel(made.id)
    assert sum("dibs.actor" in query for query in sent) == 1
    assert [audit.actor for audit in client.audit()] == ["erin"]
