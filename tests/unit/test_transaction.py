"""The completion of a job in a handler's own transaction."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.client.context import Context
from dibs.client.transaction import Transaction
from dibs.db.adapters import client_async
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.once

CLAIMED = dibs.Claimed(
    b"i" * 16, b"t" * 16, "q", "k", None, None, None, None, 0, 1, 1, 3, 0, bytes(8), None, bytes(8), bytes(8)
)


@asynccontextmanager
async def begin(conn: Any) -> AsyncIterator[Any]:
    yield conn


async def test_a_follow_up_is_refused_once_the_completion_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task of the handler may enqueue one while the answer of the completion is awaited."""
    context = Context(CLAIMED)
    refused: list[Exception] = []

    async def join(*_: Any) -> Answer:
        try:
            context.enqueue(dibs.NewJob(queue="q"))
        except dibs.DibsError as error:
            refused.append(error)
        return Answer.OK

    monkeypatch.setattr(client_async, "begin", begin)
    monkeypatch.setattr(client_async, "join", join)
    async with Transaction[Any, Any](context, None, conn=object()):
        context.enqueue(dibs.NewJob(queue="q"))
    assert (len(refused), len(context.follow_ups), context.completed) == (1, 1, True)


async def test_a_follow_up_is_accepted_again_after_a_completion_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(CLAIMED)

    async def join(*_: Any) -> Answer:
        raise dibs.ConnectionLost("away")

    monkeypatch.setattr(client_async, "begin", begin)
    monkeypatch.setattr(client_async, "join", join)
    with pytest.raises(dibs.ConnectionLost):
        async with Transaction[Any, Any](context, None, conn=object()):
            pass
    context.enqueue(dibs.NewJob(queue="q"))
    assert not context.completed


async def test_a_second_transaction_that_fails_leaves_the_job_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(CLAIMED)

    async def join(*_: Any) -> Answer:
        return Answer.OK

    monkeypatch.setattr(client_async, "begin", begin)
    monkeypatch.setattr(client_async, "join", join)
    second = Transaction[Any, Any](context, None, conn=object())
    async with Transaction[Any, Any](context, None, conn=object()):
        pass
    with pytest.raises(ZeroDivisionError):
        async with second:
            raise ZeroDivisionError
    assert context.completed
