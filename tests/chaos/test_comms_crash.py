"""Supervised e-mails while the worker is killed with -9 and PostgreSQL is restarted."""

from __future__ import annotations

from examples.comms.story import play

from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server


def test_every_mail_ends_once_and_each_double_is_reported() -> None:
    """Crashes lose no process, and what was sent twice is exactly what was interrupted before its record."""
    with Server.temporary(settings={**UNSAFE_FAST, "shared_buffers": "32MB"}, in_memory=True) as server:
        migrate(server.dsn())
        report = play(server, mails=60, kills=5, restarts=1)
    assert report.wrong == []
    assert (report.kills, report.restarts) == (5, 1)
    assert report.sent_twice >= 1, "a worker was killed the moment its message was accepted"
    assert report.interrupted >= report.sent_twice
