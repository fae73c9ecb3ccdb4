"""A virtual clock for one database: frozen or running, and movable."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from dibs.db.admin import execute, fetch
from dibs.policy import Seconds, moment, seconds

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class Clock:
    """The clock of a test database; moving it moves every due time, lease and retention."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def install(self) -> None:
        """Replace the database's clock. Time goes on as before until it is moved."""
        execute(self._dsn, (files(__package__) / "clock.sql").read_text(encoding="utf-8"))

    def is_installed(self) -> bool:
        """True if this database's clock can be moved."""
        return bool(fetch(self._dsn, "select to_regclass('dibs.test_clock') is not null"))

    def now(self) -> datetime:
        """The time in the database."""
        now: datetime = fetch(self._dsn, "select dibs.now()")
        return now

    def freeze(self, at: datetime | None = None) -> None:
        """Stop the clock, at its own time or at a given one."""
        execute(
            self._dsn,
            "update dibs.test_clock set frozen_at = coalesce(%s, dibs.now()), shift = interval '0'",
            (None if at is None else moment("at", at),),
        )

    def run(self) -> None:
        """Let a frozen clock run on."""
        # The shift is in seconds: a day is 23 or 25 hours long where summer time begins or ends.
        execute(
            self._dsn,
            "update dibs.test_clock set frozen_at = null, shift ="
            " make_interval(secs => extract(epoch from frozen_at + shift - clock_timestamp())::float)"
            " where frozen_at is not null",
        )

    def move(self, by: Seconds | timedelta) -> None:
        """Move the clock forward, or back."""
        execute(self._dsn, "update dibs.test_clock set shift = shift + make_interval(secs => %s)", (seconds(by),))
