"""The sync half of ``kept_async``: a sync claim cannot be cancelled half-way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.job import Claimed


def kept(claimed: list[Claimed], give_back: Callable[[list[Claimed]], Any]) -> list[Claimed]:  # noqa: ARG001
    """What was claimed."""
    return claimed
