"""The status and progress of a job, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


def progress_json(
    done: float | None = None,
    of: float | None = 1,
    *,
    message: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make the JSON of progress: ``0.3`` of 1, or ``3`` of ``10``; ``of=None`` if the end is not known.

    >>> progress_json(3, 10, message="resizing")
    {'done': 3, 'of': 10, 'message': 'resizing'}
    """
    members = {
        "done": done,
        "of": None if done is None else of,
        "message": message,
        "data": None if data is None else {**data},
    }
    return {name: value for name, value in members.items() if value is not None}


class Status(msgspec.Struct, frozen=True):
    """The state of a job, the progress of its run, and its result.

    ``result`` is that of the last successful run; None before that, where no history is kept, and for roles that
    may not read results.
    """

    state: State
    run: int | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    due_at: datetime | None = None
    claimed_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    progress: dict[str, Any] | None = None
    result: Any = None

    @property
    def done(self) -> float | None:
        """The amount that is done."""
        return (self.progress or {}).get("done")

    @property
    def of(self) -> float | None:
        """The whole amount, if it is known."""
        return (self.progress or {}).get("of")

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1, if it is known."""
        return None if self.done is None or self.of is None else self.done / self.of

    @property
    def message(self) -> str | None:
        """The message of the handler."""
        return (self.progress or {}).get("message")

    @property
    def data(self) -> dict[str, Any]:
        """Other data of the handler."""
        return (self.progress or {}).get("data") or {}

    @property
    def has_ended(self) -> bool:
        """True if the status changes no more."""
        return self.state.has_ended or self.state is State.UNKNOWN


def spoken(progress: Mapping[str, Any] | None) -> str | None:
    """Describe progress in a few words.

    >>> spoken({"done": 3, "of": 10, "message": "resizing"})
    '3/10 resizing'
    >>> spoken({"done": 0.25, "of": 1})
    '25%'
    """
    if not progress:
        return None
    done, of = progress.get("done"), progress.get("of")
    if done is None:
        count = ""
    elif of is None:
        count = f"{done:g}"
    else:
        count = f"{done * 100:.0f}%" if of == 1 else f"{done:g}/{of:g}"
    return f"{count} {progress.get('message', '')}".strip() or None


__all__ = ["Status", "progress_json", "spoken"]
