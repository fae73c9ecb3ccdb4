"""What came of an attempt, to be sent back in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from dibs.job import Claimed


class Report(msgspec.Struct, frozen=True):
    """One attempt's end: what became of the job, and what goes with that."""

    job: Claimed
    verb: Literal["complete", "fail", "snooze", "release"]
    result: Any = None
    error: str | None = None
    final: bool = False
    delay: float | None = None
    follow_ups: tuple[Any, ...] = ()
