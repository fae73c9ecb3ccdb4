"""The settings of a queue in words: how each is written, read and explained, on the command line and in a form."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dibs.policy import Backoff, constant, exponential, progressive
from dibs.units import duration, exact

if TYPE_CHECKING:
    from collections.abc import Callable

DAYS = {"year": 365, "mon": 30, "day": 1}
_UNITS = re.compile(r"(\d+) (year|mon|day)")
_CLOCK = re.compile(r"\d+(?:\.\d+)?(?=:|$)")

Sort = Literal["whole", "number", "duration", "backoff", "choice", "switch"]


def backoff(text: str) -> Backoff:
    """Read ``exponential:1s,cap=10m,jitter=0.1``, ``constant:5s`` or ``list:1s,5s,30s``.

    >>> backoff("constant:5s")
    Backoff(kind='constant', delays=(5.0,), factor=2.0, cap=None, jitter=0.0)
    """
    kind, _, rest = text.partition(":")
    words = [word.strip() for word in rest.split(",") if word.strip()]
    delays = [duration(word) for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if kind not in {"exponential", "constant", "list"} or not delays or (kind != "list" and len(delays) > 1):
        raise ValueError(
            f"{text!r} is not a backoff; write exponential:1s,cap=10m,jitter=0.1, constant:5s or list:1s,5s"
        )
    allowed = ("jitter", "factor", "cap") if kind == "exponential" else ("jitter",)
    if unknown := sorted(set(options) - set(allowed)):
        raise ValueError(f"a {kind} backoff has no {unknown[0]!r}, only {' and '.join(allowed)}")
    numbers: dict[str, Any] = {name: _number(value) for name, value in options.items() if name != "cap"}
    if "cap" in options:
        numbers["cap"] = duration(options["cap"])
    if kind == "list":
        return progressive(delays, **numbers)
    return (constant if kind == "constant" else exponential)(delays[0], **numbers)


def write_backoff(value: dict[str, Any]) -> str:
    """A backoff as the view ``queues`` has it, in the words that are read.

    >>> write_backoff({"kind": "constant", "delays": [5], "factor": 2, "cap": None, "jitter": 0})
    'constant:5s'
    """
    parts = [exact(span(delay)) for delay in value["delays"]]
    if value["kind"] == "exponential":
        parts.append(f"factor={value['factor']:g}")
        if value.get("cap") is not None:
            parts.append(f"cap={exact(span(value['cap']))}")
    if value.get("jitter"):
        parts.append(f"jitter={value['jitter']:g}")
    return f"{value['kind']}:{','.join(parts)}"


def span(value: Any) -> timedelta:
    """A duration out of JSON: seconds, or as PostgreSQL writes it.

    >>> span("1 day 02:00:00.5")
    datetime.timedelta(days=1, seconds=7200, microseconds=500000)
    """
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        return timedelta(seconds=float(value))
    days = sum(int(count) * DAYS[unit] for count, unit in _UNITS.findall(value))
    clock = [float(part) for part in _CLOCK.findall(value)]
    hours, minutes, seconds = clock or (0, 0, 0)
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _switch(text: str) -> bool:
    if text not in {"yes", "no"}:
        raise ValueError(f"{text!r} is not yes or no")
    return text == "yes"


READ: dict[Sort, Callable[[str], Any]] = {
    "whole": _whole, "number": _number, "duration": duration, "backoff": backoff, "choice": str, "switch": _switch,
}  # fmt: skip


class Setting(msgspec.Struct, frozen=True):
    """One setting of a queue: what its values are, and what it is for."""

    name: str
    sort: Sort
    help: str
    optional: bool = False
    choices: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """A value out of what somebody has typed; raises ValueError with a sentence."""
        given = text.strip()
        if self.optional and given == "none":
            return None
        try:
            value = READ[self.sort](given)
        except ValueError as error:
            raise ValueError(f"{error}{'; or write none' if self.optional else ''}") from None
        if self.choices and value not in self.choices:
            raise ValueError(f"{given!r} is not one of {', '.join(self.choices)}")
        return value

    def write(self, value: Any) -> str:
        """A value as it is typed; the opposite of :meth:`read`."""
        if value is None:
            return "none"
        if self.sort == "backoff":
            return write_backoff(value)
        if self.sort == "duration":
            return exact(span(value))
        if self.sort == "switch":
            return "yes" if value else "no"
        return f"{value:.15g}" if isinstance(value, float) else str(value)


SETTINGS = (
    Setting("priority", "whole", "The default of its jobs: -100 to 100, higher goes first."),
    Setting("lease", "duration", "How long a worker may hold a job without renewing."),
    Setting("lease_growth", "number", "Each attempt's lease is this many times the one before."),
    Setting("lease_cap", "duration", "No lease grows beyond this."),
    Setting("max_attempts", "whole", "How often a job is tried before it is exhausted."),
    Setting("max_losses", "whole", "How often a job's worker may die before the job is quarantined."),
    Setting(
        "backoff", "backoff", "Waits after failures: exponential:1s,cap=10m,jitter=0.1, constant:5s or list:1s,5s."
    ),
    Setting("ttl", "duration", "Jobs expire that long after they were first due; none for never.", optional=True),
    Setting("payload_limit", "whole", "The largest payload, in bytes."),
    Setting("history", "choice", "Which attempts are kept.", choices=("all", "failures", "none")),
    Setting("retention", "duration", "How long jobs are kept, from their enqueue."),
    Setting("history_retention", "duration", "How long attempts are kept."),
    Setting("ring", "switch", "Whether an enqueue wakes waiting workers at once."),
    Setting("shards", "whole", "Split it into shards, each claimed by one worker at a time; or none.", optional=True),
    Setting("shard_lease", "duration", "How long a worker holds it, or a shard, without renewing."),
    Setting("max_depth", "whole", "How many jobs may wait; none for any number.", optional=True),
    Setting("max_age", "duration", "How long the oldest may be due; none for any time.", optional=True),
    Setting("when_full", "choice", "What happens to new jobs of a full queue.", choices=("refuse", "sideline")),
    Setting("newest_first", "switch", "Serve the newest job first, not the oldest."),
    Setting(
        "noisy_share",
        "number",
        "Groups with more than this share of what runs are served last; or none.",
        optional=True,
    ),
)
"""Every setting, in the order of the type ``queue_policy``."""
