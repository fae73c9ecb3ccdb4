"""Supervised e-mails while the worker is killed with -9 and PostgreSQL is restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.comms import story

if TYPE_CHECKING:
    import pytest

    from dibs.embedded import Server


def test_every_mail_ends_once_and_each_double_is_reported(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes lose no process, and what was sent twice is exactly what was interrupted before its record."""
    # One mail in five is turned away again and again: its pauses would be most of the time that this takes.
    monkeypatch.setattr(story, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(story, "LONGEST_DELAY", 0.5)
    report = story.play(own_server, mails=40, kills=3, restarts=1)
    assert report.wrong == []
    assert (report.kills, report.restarts) == (3, 1)
    assert report.sent_twice >= 1, "a worker was killed the moment its message was accepted"
    assert report.interrupted >= report.sent_twice
