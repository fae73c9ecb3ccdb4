"""Exclusive queues, shards and their holders, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from datetime import datetime


class Hold(msgspec.Struct, frozen=True):
    """A worker's hold of a queue or shard: it may claim from ``name`` for ``lasts`` seconds, once it is claimable.

    An ordinary queue has no shard and is held forever. A queue of which we hold nothing has no name. Ask
    again in ``again`` seconds.
    """

    queue: str
    shard: int | None
    name: str | None
    lasts: float | None
    claimable: bool
    again: float


class Shard(msgspec.Struct, frozen=True):
    """An exclusive queue, or a shard of one, and who holds it."""

    queue: str
    shard: int
    name: str
    worker: int | None
    worker_name: str | None
    taken_at: datetime | None
    held_until: datetime | None
    held: bool
    claimable: bool


__all__ = ["Hold", "Shard"]
