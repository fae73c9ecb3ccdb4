"""Five hundred e-mails through a mail server that rejects one in five, and what came of each of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from dibs.embedded import find_binaries
from examples.loopback import Mailbox, MailServer

if TYPE_CHECKING:
    from dibs.embedded import Server

HERE = Path(__file__).resolve().parent
FIRST_DELAY, LONGEST_DELAY = 0.5, 4.0


@dataclass
class Report:
    """The facts, the deliveries and the counts of the mail server."""

    mails: int
    seconds: float
    sent: int = 0
    given_up: int = 0
    attempts: int = 0
    failures: int = 0
    too_early: int = 0
    stuck: int = 0
    turned_away: int = 0
    accepted_by_server: int = 0
    accepted_on_record: int = 0
    sent_twice: int = 0
    interrupted: int = 0
    unreported: int = 0
    kills: int = 0
    restarts: int = 0

    @property
    def wrong(self) -> list[str]:
        """Return a sentence for each fact that must not be."""
        checks = {
            "every process ends in exactly one terminal fact": self.sent + self.given_up == self.mails,
            "nothing is stuck": self.stuck == 0,
            "no attempt comes before its pause is over": self.too_early == 0,
            "each success was accepted once, but for sends interrupted before they were on record":
                self.accepted_by_server - self.accepted_on_record == self.sent_twice,
            "each message sent twice is on record as interrupted": self.unreported == 0,
            "nothing is sent twice when nobody dies": bool(self.kills or self.restarts) or self.sent_twice == 0,
        }  # fmt: skip
        return [what for what, holds in checks.items() if not holds]

    def as_json(self) -> dict[str, Any]:
        """Everything, with the verdict."""
        return {**asdict(self), "wrong": self.wrong}


def install(dsn: str) -> None:
    """Do by program the steps of the README."""
    command = [str(find_binaries()["psql"]), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(HERE / "install.sql"), dsn]
    subprocess.run(command, check=True, capture_output=True, text=True)


class Workers:
    """One worker process that is started again whenever it is killed."""

    def __init__(self, dsn: str, environment: dict[str, str]) -> None:
        command = ["-m", "dibs", "worker", "--channels", "--queue", "comms", "--slots", "20", "--grace", "5"]
        self._command = [sys.executable, *command, "--dsn", dsn]
        self._environment = {**os.environ, **environment}
        self._lock = threading.Lock()
        self.killed = 0
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """Kill it, without a warning, and start another."""
        with self._lock:
            self._process.kill()
            self._process.wait()
            self.killed += 1
            self._start()

    def stop(self) -> None:
        """Stop it as one should."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def play(server: Server, *, mails: int, kills: int = 0, restarts: int = 0, timeout: float = 120) -> Report:
    """Send so many e-mails; kill the worker the moment the server has accepted one, and restart PostgreSQL."""
    dsn = server.dsn()
    install(dsn)
    prepare(dsn)
    mailbox = Mailbox(failing=0.2)
    began = time.monotonic()
    with MailServer(mailbox) as smtp:
        workers = Workers(as_worker(dsn), smtp.environment)
        mailbox.accepted = _killer(workers, mails, kills)
        try:
            kick_off(dsn, mails)
            for n in range(restarts):
                _wait(dsn, mails * (n + 1) // (restarts + 2), timeout)
                server.stop("immediate")
                server.start()
            _wait(dsn, mails, timeout)
            took = time.monotonic() - began
            _wait_until_idle(dsn, timeout)
        finally:
            workers.stop()
    return judge(dsn, mailbox, Report(mails, round(took, 1), kills=workers.killed, restarts=restarts))


def as_worker(dsn: str) -> str:
    """Return the DSN for a login that is only a worker: it cannot enqueue, and owns no table."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            conn.execute("create role comms_worker login in role dibs_worker")
    return re.sub(r"user=\w+", "user=comms_worker", dsn)


def _killer(workers: Workers, mails: int, kills: int) -> Any:
    seen = 0

    def accepted() -> None:
        nonlocal seen
        seen += 1
        if workers.killed < kills and seen >= (workers.killed + 1) * mails // (kills + 2):
            workers.kill()

    return accepted


def prepare(dsn: str) -> None:
    """Short pauses and leases, so that nobody waits for hours."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute('select dibs.set_queue(\'comms\', \'{"lease": 2, "lease_cap": 60, "max_losses": 50}\')')
        conn.execute(
            "update comms.policy set max_attempts = 8, first_delay = make_interval(secs => %s),"
            " longest_delay = make_interval(secs => %s), recheck = '2 s'",
            (FIRST_DELAY, LONGEST_DELAY),
        )


def kick_off(dsn: str, mails: int) -> None:
    """Ask for each e-mail twice: the second time changes nothing."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for _ in range(2):
            conn.execute(
                "select comms.kickoff_send_email(jsonb_build_object('request_key', 'mail ' || n,"
                " 'to', 'user' || n || '@example.org', 'subject', 'Mail ' || n, 'text', 'Hello'))"
                " from generate_series(1, %s) as n",
                (mails,),
            )


def _wait(dsn: str, ended: int, timeout: float) -> None:
    _wait_for(dsn, "select count(*) >= %s from comms.send_email_task_ended", (ended,), timeout)


def _wait_until_idle(dsn: str, timeout: float) -> None:
    _wait_for(dsn, "select not exists (select from dibs.ready) and not exists (select from dibs.lease)", (), timeout)


def _wait_for(dsn: str, question: str, args: tuple[Any, ...], timeout: float) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as conn:
            if conn.execute(question, args).fetchone() == (True,):
                return
        time.sleep(0.1)
    raise TimeoutError(f"not after {timeout:g} s: {question} {args}")


FACTS = """
select count(*) filter (where e.outcome = 'sent'), count(*) filter (where e.outcome = 'given up'),
  (select count(*) from comms.send_email_task_scheduled), (select count(*) from comms.send_email_task_failed),
  (select count(*) from comms.send_email_task as t where comms.is_send_email_stuck(t.send_email_task_id))
from comms.send_email_task_ended as e
"""
TOO_EARLY = """
select count(*)
from (
  select s.due_at, lag(f.failed_at) over tries as failed_at, row_number() over tries - 1 as failures
  from comms.send_email_task_scheduled as s
  left join comms.send_email_task_failed as f on f.attempt_id = s.attempt_id
  window tries as (partition by s.send_email_task_id order by s.attempt_id)
) as a
cross join comms.policy as p
where p.channel = 'email' and a.failures > 0
  and a.due_at < a.failed_at + comms.pause_after(p, a.failures::integer) - interval '1 millisecond'
"""
DELIVERIES = """
select count(d.accepted_at), coalesce(sum(d.interrupted), 0)::integer,
  array_agg(t.to_address) filter (where d.interrupted > 0)
from dibs.deliveries as d
join comms.send_email_task_scheduled as s on s.job_id = d.job_id
join comms.send_email_task as t on t.send_email_task_id = s.send_email_task_id
"""


def judge(dsn: str, mailbox: Mailbox, report: Report) -> Report:
    """Compare what the database says with what the mail server saw."""
    received = Counter(recipients[0] for recipients in mailbox.recipients)
    with psycopg.connect(dsn, autocommit=True) as conn:
        report.sent, report.given_up, report.attempts, report.failures, report.stuck = _row(conn, FACTS)
        (report.too_early,) = _row(conn, TOO_EARLY)
        report.accepted_on_record, report.interrupted, noted = _row(conn, DELIVERIES)
    report.turned_away = mailbox.turned_away
    report.accepted_by_server = received.total()
    report.sent_twice = sum(count - 1 for count in received.values())
    twice = {address for address, count in received.items() if count > 1}
    report.unreported = len(twice - set(noted or ()))
    return report


def _row(conn: psycopg.Connection[Any], question: str) -> tuple[Any, ...]:
    return tuple(conn.execute(question).fetchall()[0])
