"""examples/comms, end to end: supervised processes, a worker that may not enqueue, and real servers on loopback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import psycopg
import pytest
from examples.comms.story import as_worker, install
from examples.loopback import MailServer, WebServer
from psycopg.types.json import Jsonb

import dibs
from dibs import channels
from dibs.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from dibs.testing import Clock


@pytest.fixture
def comms(dsn: str, db: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    install(dsn)
    return db


def kick_off(db: psycopg.Connection[Any], channel: str, **payload: Any) -> Any:
    row = db.execute(f"select comms.kickoff_send_{channel}(%s)", (Jsonb(payload),)).fetchone()
    assert row
    assert row[0]["success"], row
    return row[0]["payload"][f"send_{channel}_task_id"]


def facts(db: psycopg.Connection[Any], id: int, channel: str = "email") -> tuple[Any, ...]:
    row = db.execute(f"select attempts, failures, ended from comms.send_{channel}_facts(%s)", (id,)).fetchone()
    assert row
    return tuple(row)


async def run(dsn: str, **environment: str) -> None:
    """Run what is due as a login that is a worker and nothing else, until nothing is."""
    app = channels.app(as_worker(dsn), environment=environment)
    async with asyncio.timeout(60):
        await Worker(app, WorkerSettings(("comms",), drain=True, upkeep=False)).run()
    await app.aclose()


MAIL = {"to": "ann@example.org", "subject": "Hi", "text": "Hello"}


async def test_an_email_is_sent_and_its_process_ends_once(
    dsn: str, comms: psycopg.Connection[Any], client: dibs.Client
) -> None:
    id = kick_off(comms, "email", **MAIL, request_key="order 7")
    assert kick_off(comms, "email", **MAIL, request_key="order 7") == id
    with MailServer() as server:
        await run(dsn, **server.environment)
        kick_off(comms, "email", **MAIL, request_key="order 7")
        await run(dsn, **server.environment)
    [sent] = server.mailbox.messages
    assert (sent["To"], sent["Subject"]) == ("ann@example.org", "Hi")
    assert facts(comms, id) == (1, 0, "sent")
    assert client.queues.depth("comms").waiting == 0
    receipt = comms.execute("select receipt ->> 'id' from comms.send_email_task_succeeded").fetchone()
    assert receipt == (sent["Message-ID"],)


async def test_a_text_message_is_sent(dsn: str, comms: psycopg.Connection[Any]) -> None:
    id = kick_off(comms, "sms", to="+15550001234", text="Hello")
    with WebServer() as server:
        environment = {"DIBS_SMS_URL": server.url, "DIBS_SMS_ACCOUNT": "AC1", "DIBS_SMS_TOKEN": "secret"}
        environment["DIBS_SMS_FROM"] = "+15559999"
        await run(dsn, **environment)
    [request] = server.requests
    assert parse_qs(request.body)["To"] == ["+15550001234"]
    assert facts(comms, id, "sms") == (1, 0, "sent")


def test_bad_requests_are_validation_failures(comms: psycopg.Connection[Any]) -> None:
    for channel, payload in (("email", {"to": "ann"}), ("email", {"to": "a@b"}), ("sms", {"to": "5"}), ("sms", {})):
        row = comms.execute(f"select comms.kickoff_send_{channel}(%s)", (Jsonb(payload),)).fetchone()
        assert row
        assert row[0]["validation_failure_message"]
    row = comms.execute("select comms.send_email_supervisor('{\"send_email_task_id\": 404}')").fetchone()
    assert row
    assert "no send_email_task 404" in row[0]["validation_failure_message"]


async def test_giving_up_is_a_fact_and_pauses_grow(
    dsn: str, comms: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    """Giving up is the terminal fact, written after as many attempts as the policy says."""
    id = kick_off(comms, "email", **MAIL)
    pauses = []
    with MailServer() as server:
        server.mailbox.rules = ["451 4.3.0 not now"] * 5
        for failed in range(1, 6):
            await run(dsn, **server.environment)
            assert facts(comms, id) == (min(failed + 1, 5), failed, None if failed < 5 else "given up")
            due = comms.execute(
                "select extract(epoch from due_at - dibs.now())::float from dibs.jobs where kind = 'email'"
                " and state = 'scheduled'"
            ).fetchall()
            pauses += [round(row[0], -1) for row in due]
            clock.move(600)
    assert pauses == [30, 60, 120, 240]
    reason = comms.execute("select outcome, reason from comms.send_email_task_ended").fetchone()
    assert reason == ("given up", "451 4.3.0 not now")
    assert client.queues.depth("comms").waiting == 0
    assert server.mailbox.messages == []


async def test_a_job_that_told_nobody_is_noticed(
    dsn: str, comms: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    """A crash between claim and work must not lose the task and leave its supervisor waiting forever."""
    lost, sent = (kick_off(comms, "email", **{**MAIL, "to": f"{who}@example.org"}) for who in ("lost", "sent"))
    with MailServer() as server:
        await run(dsn)  # the supervisors only: no channel is configured, so e-mails wait
        clock.move(6)
        comms.execute("select from dibs.maintain()")  # offers what waits for a worker that runs it to everyone again
        emails = [job for job in client.claim("comms", 10) if job.kind == "email"]
        assert len(emails) == 2
        for job in emails:
            comms.execute("select dibs.begin_delivery(%s, %s, 'smtp')", (job.id, job.token))
        [accepted] = [job for job in emails if job.payload["send_email_task_id"] == sent]
        comms.execute("select dibs.record_delivery(%s, %s, 'accepted')", (accepted.id, accepted.token))
        client.cancel_many([job.id for job in emails])
        for job in emails:
            client.fail(job, "its worker went away")
        assert {client.status(job.id).state for job in emails} == {dibs.State.CANCELLED}
        clock.move(61)
        await run(dsn, **server.environment)
        assert facts(comms, sent) == (1, 0, "sent")
        assert facts(comms, lost) == (2, 1, None)
        clock.move(61)
        await run(dsn, **server.environment)
    assert facts(comms, lost) == (2, 1, "sent")
    assert [r[0] for r in server.mailbox.recipients] == ["lost@example.org"]


async def test_a_supervisor_that_is_gone_is_stuck_and_can_be_set_going(
    dsn: str, comms: psycopg.Connection[Any], client: dibs.Client
) -> None:
    id = kick_off(comms, "email", **MAIL, request_key="k")

    def stuck() -> bool:
        row = comms.execute("select comms.is_send_email_stuck(%s)", (id,)).fetchone()
        return bool(row and row[0])

    assert not stuck()
    client.cancel_many([job.id for job in client.find_jobs({"queue": "comms"}).jobs])
    assert stuck()
    kick_off(comms, "email", **MAIL, request_key="k")
    assert not stuck()
    with MailServer() as server:
        await run(dsn, **server.environment)
    assert facts(comms, id) == (1, 0, "sent")
    assert not stuck()


def test_a_redelivered_supervisor_changes_nothing(comms: psycopg.Connection[Any], client: dibs.Client) -> None:
    """One hundred redeliveries leave one attempt and one recheck."""
    id = kick_off(comms, "email", **MAIL)
    for _ in range(100):
        comms.execute("select comms.send_email_supervisor(%s)", (Jsonb({"send_email_task_id": id}),))
    assert facts(comms, id) == (1, 0, None)
    assert sorted(job.kind for job in client.find_jobs({"queue": "comms"}).jobs) == ["db_function", "email"]


def test_the_worker_has_no_table_and_the_user_only_kicks_off(dsn: str, comms: psycopg.Connection[Any]) -> None:
    with psycopg.connect(as_worker(dsn), autocommit=True) as worker:
        for statement in (
            "select * from comms.send_email_task",
            "select comms.kickoff_send_email('{}')",
            "select comms.schedule_email(1, '0')",
            "select dibs.enqueue('comms', 'email')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(statement)
        assert worker.execute("select dibs.run_function('comms.get_email_payload', '{}')").fetchone()
    comms.execute("set role comms_user")
    assert kick_off(comms, "email", **MAIL)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        comms.execute("select comms.record_email_success('{}')")
    comms.execute("reset role")


def test_the_install_can_be_run_again(dsn: str, comms: psycopg.Connection[Any]) -> None:
    id = kick_off(comms, "email", **MAIL)
    install(dsn)
    assert facts(comms, id) == (0, 0, None)
    assert comms.execute("select count(*), count(flaw) from dibs.functions").fetchone() == (8, 0)
    stable = comms.execute("select count(*) from pg_proc where proname like 'send%facts' and provolatile = 's'")
    assert stable.fetchone() == (2,)
