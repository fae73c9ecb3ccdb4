"""A dashboard on the test's database, asked over HTTP; and a database in which there is something of everything."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, cast

import pytest
from starlette.testclient import TestClient

import dibs
from dibs.db import calls
from dibs.web import Access, app
from dibs.web.access import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from dibs.operation import Action
    from dibs.web import Authorize
    from tests.servers import Databases

SAME = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says when a page of ours sends a form."""
NASTY = '<script>alert("x")</script>'
TRACE = 'Traceback (most recent call last):\n  File "shop.py", line 7\nValueError: ' + NASTY


class Browse(Protocol):
    """Makes a client of another dashboard; ``who`` says who may what."""

    def __call__(self, *, authorize: Authorize | None = ..., dsn: str = ..., **options: Any) -> TestClient: ...


def who(request: Request) -> Access:
    """A request may do what it says itself; if it says nothing, everything."""
    told = request.headers.get("X-Actions")
    return Access("tester", ACTIONS if told is None else frozenset(cast("list[Action]", told.split(","))))


@pytest.fixture(scope="module")
def web_dsn(databases: Databases, template: str) -> Iterator[str]:
    """A database of this module's tests, which only look at what others have made in it."""
    with databases.copy(template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def crew(web_dsn: str) -> Iterator[dibs.Client]:
    """A client of that database."""
    with dibs.Client(web_dsn, patience=20) as client:
        yield client


@pytest.fixture(scope="module")
def made(crew: dibs.Client) -> dict[str, UUID]:
    """Something of everything."""
    return fill(crew)


@pytest.fixture(scope="module")
def browse(web_dsn: str) -> Iterator[Browse]:
    with ExitStack() as stack:

        def make(*, authorize: Authorize | None = who, dsn: str = web_dsn, **options: Any) -> TestClient:
            return stack.enter_context(asking(app(dsn, authorize=authorize, **options)))

        yield make


def asking(served: ASGIApp) -> TestClient:
    """A client on this machine, which sends forms as a browser would."""
    return TestClient(served, "http://localhost", client=("127.0.0.1", 5000), headers=SAME, follow_redirects=False)


@pytest.fixture(scope="module")
def web(browse: Browse) -> TestClient:
    """A dashboard in which everything is allowed."""
    return browse()


def fill(client: dibs.Client) -> dict[str, UUID]:
    """Put something of everything in; the jobs by their states."""
    client.queues.set("mail", max_attempts=2, backoff=dibs.exponential(1.5, factor=3, cap=1800, jitter=0.25))
    made = {"ready": client.enqueue("mail", "ready", {"to": NASTY, "token": "s3cret"}, headers={"card": 4711}).id}
    made["scheduled"] = client.enqueue("mail", "scheduled", delay=3600).id
    for kind in ("succeeded", "running", "failed", "exhausted", "retried"):
        made[kind] = client.enqueue("work", kind, {"n": 2**60}, max_attempts=1 if kind == "exhausted" else 5).id
    held = {job.kind: job for job in client.claim("work", 10)}
    client.complete(held["succeeded"], {"done": True, "token": "s3cret"})
    client.progress(held["running"], 3, 10, message="under way")
    client.fail(held["failed"], TRACE, final=True)
    client.fail(held["exhausted"], TRACE)
    client.fail(held["retried"], TRACE, delay=60)
    made["cancelled"] = client.enqueue("mail", "cancelled").id
    client.cancel(made["cancelled"])
    client.queues.pause("mail")
    client.limits.set(queue="work", concurrency=3)
    client.schedules.set(
        "nightly", dibs.NewJob(queue="mail", kind="nightly"), cron="30 2 * * 1-5", zone="Europe/Berlin"
    )
    client.schedules.set("often", dibs.NewJob(queue="work", kind="often"), interval=300)
    secret, _ = client._run(calls.workers.register_worker("shop:app", {"host": "web-1", "queues": ["work"]}))
    client._run(calls.workers.beat_worker(secret, cpu=0.42, memory=123_000_000))
    client._run(calls.channels.append_error("smtp: 451 later\nand more", made["failed"], "smtp"))
    client.upkeep.roll_up()
    return made
