# Written by tools/unasync.py from groups_async.py: change that and run `make sync`.
"""``client.groups``: fair shares and limits of groups within a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from dibs.client.noun import Noun
from dibs.db import calls

if TYPE_CHECKING:
    import builtins

    from dibs.info import GroupInfo
    from dibs.policy import GroupPolicy


class Groups(Noun):
    """Groups of a queue; reached as ``client.groups``."""

    def list(self, queue: str, *, limit: int = 20) -> builtins.list[GroupInfo]:
        """Return groups: up to ``limit`` that run or wait most, as many that wait longest, as many that are noisy."""
        return self._run(calls.groups.groups(queue, limit))

    def set(self, queue: str, name: str | None = None, **policy: Unpack[GroupPolicy]) -> None:
        """Set weight, concurrency or rate of a group, or of every group of the queue without its own settings."""
        self._run(calls.groups.set_group(queue, name, policy))

    def drop(self, queue: str, name: str | None = None) -> bool:
        """Drop the settings of a group; false if it had none."""
        return self._run(calls.groups.drop_group(queue, name))
