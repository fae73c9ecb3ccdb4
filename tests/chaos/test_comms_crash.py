"""Supervised e-mails while the worker is killed with -9 and PostgreSQL is restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.comms.story import play

if TYPE_CHECKING:
    from dibs.embedded import Server


def test_every_mail_ends_once_and_each_double_is_reported(own_server: Server) -> None:
    """Crashes lose no process, and what was sent twice is exactly what was interrupted before its record."""
    report = play(own_server, mails=40, kills=3, restarts=1)
    assert report.wrong == []
    assert (report.kills, report.restarts) == (3, 1)
    assert report.sent_twice >= 1, "a worker was killed the moment its message was accepted"
    assert report.interrupted >= report.sent_twice
