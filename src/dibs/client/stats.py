# Written by tools/unasync.py from stats_async.py: change that and run `make sync`.
"""``client.stats``: numbers of runs by outcome, run times and wait times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.client.noun import Noun
from dibs.db import calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.info import Vital
    from dibs.policy import Seconds
    from dibs.stats import Counters, Statistics, Totals


class Stats(Noun):
    """Statistics; reached as ``client.stats``."""

    def statistics(
        self,
        queue: str | None = None,
        kind: str | None = None,
        *,
        by: str | Sequence[str] = ("queue", "kind"),
        since: Seconds = 3600,
        every: Seconds | None = None,
    ) -> list[Statistics]:
        """Sum up the last ``since`` seconds by queue and kind.

        ``by`` may name one of the two, or none (``()``) for everything in one sum. ``every`` splits it into periods;
        periods without a run are left out.
        """
        return self._run(calls.statistics.statistics(queue, kind, by, since, every))

    def totals(self, queue: str | None = None, kind: str | None = None) -> list[Totals]:
        """Return each kind's totals, its last run, and its averages over the last hour, day and week."""
        return self._run(calls.statistics.totals(queue, kind))

    def counters(self) -> list[Counters]:
        """Return counters since the install, by queue and kind: numbers that only rise."""
        return self._run(calls.statistics.counters())

    def vitals(self) -> list[Vital]:
        """Return numbers about the whole database, for monitoring: workers, schedules, limits, sizes, the horizon."""
        return self._run(calls.doctor.vitals())

    def set_retention(self, *, minutes: Seconds | None = None, hours: Seconds | None = None) -> None:
        """Set how long statistics are kept by the minute and by the hour."""
        self._run(calls.statistics.set_stat_retention(minutes, hours))
