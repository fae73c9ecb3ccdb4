"""Checks that several commands make before they change something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.cli.command import did_you_mean
from dibs.errors import UnknownQueue

if TYPE_CHECKING:
    from dibs import Client


def refuse_unknown_queue(client: Client, queue: str) -> None:
    """Refuse a queue that does not exist: a limit would create it, and a misspelt name would stay in every list."""
    names = [known.name for known in client.queues.list()]
    if queue not in names:
        raise UnknownQueue(
            f"there is no queue {queue!r}{did_you_mean(queue, names)}", hint=f"make it first: dibs queues set {queue}"
        )
