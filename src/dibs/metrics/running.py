"""The runs that have begun in this process and not ended, so that each gauge that goes up comes down once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dibs.job import Claimed


class Running:
    """The runs under way. A run is over when its outcome is recorded or its lease is lost, whichever comes first."""

    def __init__(self) -> None:
        self._began: dict[tuple[bytes, int], float] = {}

    def began(self, job: Claimed) -> None:
        """Note the start of a run."""
        self._began[job._key, job.run] = time.monotonic()

    def ended(self, job: Claimed) -> float | None:
        """Return the seconds since this run began; None if it did not begin here or has ended."""
        began = self._began.pop((job._key, job.run), None)
        return None if began is None else time.monotonic() - began
