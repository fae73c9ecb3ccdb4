"""examples/letters: a supervisor in Python, with the same promises as the one in SQL."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from examples.letters import Decision, Facts, decide
from examples.loopback import Mailbox, MailServer

from dibs.worker import Worker, WorkerSettings
from examples import letters

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    import dibs
    from dibs.testing import Clock


@pytest.fixture
def post(dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    db.execute(letters.TABLES)
    monkeypatch.setattr(letters.app, "dsn", dsn)
    letters.provider.cache_clear()
    with MailServer(Mailbox(failing=0.4)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


async def run() -> None:
    async with asyncio.timeout(60):
        await Worker(letters.app, WorkerSettings(("letters",), drain=True, upkeep=False)).run()


async def test_letters_are_sent_once_and_every_one_ends(
    post: MailServer, db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    for _ in range(2):
        ids = [await letters.write(f"user{n}@example.org", "Hello", f"letter {n}") for n in range(15)]
    for _ in range(7):
        await run()
        assert client.queues.depth("letters").waiting <= 2 * len(ids)
        clock.move(600)
    await letters.provider().close()
    await letters.app.aclose()
    ended = db.execute("select letter_id, outcome from letters.ended order by 1").fetchall()
    assert [row[0] for row in ended] == ids
    sent = sum(row[1] == "sent" for row in ended)
    assert len(post.mailbox.messages) == sent == len(post.mailbox.counts)
    assert post.mailbox.turned_away > 0
    assert db.execute("select count(*) from letters.failed").fetchone() == (post.mailbox.turned_away,)
    assert client.queues.depth("letters").waiting == 0


async def test_a_supervisor_run_again_and_again_changes_nothing(
    post: MailServer, db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    letter = await letters.write("ann@example.org", "Hello", "k")
    for _ in range(20):
        await letters.supervise(letter)
    assert sorted(job.kind for job in client.find_jobs({"queue": "letters"}).jobs) == [
        "letters.send",
        "letters.supervise",
    ]
    client.cancel_many([job.id for job in client.find_jobs({"queue": "letters", "kind": "letters.send"}).jobs])
    await letters.supervise(letter)
    assert db.execute("select error from letters.failed").fetchall() == [
        ("its job ended as cancelled and told nobody",)
    ]
    await letters.app.aclose()


def test_decisions_follow_from_facts() -> None:
    second = timedelta(seconds=1)
    cases = {
        Facts(0, None, None, None, None, None): Decision("try"),
        Facts(0, None, None, None, 1, "running"): Decision("wait"),
        Facts(0, None, None, None, 1, "exhausted"): Decision("count as failed"),
        Facts(3, 20 * second, "no", None, None, None): Decision("try", 100 * second),
        Facts(3, 900 * second, "no", None, None, None): Decision("try"),
        Facts(5, second, "no", None, None, None): Decision("give up"),
        Facts(5, second, "no", "given up", None, None): Decision("nothing"),
    }
    assert {facts: decide(facts) for facts in cases} == cases
