"""Exclusive queues and shards, and who holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db.calls.call import Call, columns, first
from dibs.shards import Hold, Shard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID


def hold_shards(worker: UUID, queues: Sequence[str]) -> Call[list[Hold]]:
    """Take, renew and rebalance a worker's holds of exclusive queues and shards."""
    return Call(
        "select queue, shard, name, extract(epoch from held_until - dibs.now())::float8, claimable,"
        " extract(epoch from again)::float8 from dibs.hold_shards(%s, %s::text[])",
        (worker, list(queues)),
        lambda rows: [Hold(*row) for row in rows],
    )


def release_shards(worker: UUID, queues: Sequence[str] | None) -> Call[int]:
    """Release a worker's holds."""
    return Call("select dibs.release_shards(%s, %s::text[])", (worker, None if queues is None else list(queues)), first)


def shards(queue: str | None) -> Call[list[Shard]]:
    """List exclusive queues and shards, and their holders."""
    return Call(
        f"select {columns(Shard)} from dibs.shards where %s::text is null or queue = %s order by queue, shard",
        (queue, queue),
        lambda rows: [Shard(*row) for row in rows],
    )
