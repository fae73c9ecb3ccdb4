"""``client.groups``: fair shares and limits of groups within a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from dibs.client.noun_async import AsyncNoun
from dibs.db import calls

if TYPE_CHECKING:
    import builtins

    from dibs.info import GroupInfo
    from dibs.policy import GroupPolicy


class AsyncGroups(AsyncNoun):
    """Groups of a queue; reached as ``client.groups``."""

    async def list(self, queue: str, *, limit: int = 20) -> builtins.list[GroupInfo]:
        """Return groups: up to ``limit`` that run or wait most, as many that wait longest, as many that are noisy."""
        return await self._run(calls.groups.groups(queue, limit))

    async def set(self, queue: str, name: str | None = None, **policy: Unpack[GroupPolicy]) -> None:
        """Set weight, concurrency or rate of a group, or of every group of the queue without its own settings."""
        await self._run(calls.groups.set_group(queue, name, policy))

    async def drop(self, queue: str, name: str | None = None) -> bool:
        """Drop the settings of a group; false if it had none."""
        return await self._run(calls.groups.drop_group(queue, name))
