# Written by tools/unasync.py from queues_async.py: change that and run `make sync`.
"""``client.queues``: queues, their policies, pauses and depths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from dibs.client.noun import Noun
from dibs.client.steps import in_steps
from dibs.db import calls
from dibs.errors import UnknownQueue

if TYPE_CHECKING:
    import builtins

    from dibs.info import Depth, DrainEstimate, PriorityDepth, QueueInfo, Resumed, SettingInfo
    from dibs.operation import Changed, Steps
    from dibs.policy import QueuePolicy, Seconds
    from dibs.shards import Shard


class Queues(Noun):
    """Queues; reached as ``client.queues``."""

    def list(self) -> builtins.list[QueueInfo]:
        """Return every queue and its policy."""
        return self._run(calls.queues.queues())

    def get(self, name: str) -> QueueInfo:
        """Return one queue and its policy; raises UnknownQueue."""
        found = self._run(calls.queues.queue(name))
        if found is None:
            raise UnknownQueue(f"there is no queue {name!r}", hint="list them: dibs queues")
        return found

    def set(self, name: str, **policy: Unpack[QueuePolicy]) -> None:
        """Make a queue, or change its policy while it runs."""
        self._run(calls.queues.set_queue(name, policy))

    def drop(self, name: str) -> bool:
        """Drop a queue that has no jobs and no schedule, with its policy; raises QueueInUse and UnknownQueue."""
        return self._run(calls.operate.drop_queue(name))

    def pause(self, name: str) -> bool:
        """Stop handing out a queue's jobs; false if it was paused before."""
        return self._run(calls.queues.pause(name))

    def resume(self, name: str, *, extend: Seconds | None = None) -> Resumed:
        """Hand out a queue's jobs again; ``extend`` gives jobs past their TTL that much more time."""
        return self._run(calls.queues.resume(name, extend))

    def purge(self, name: str, **steps: Unpack[Steps]) -> Changed:
        """Delete the jobs of a queue that wait, as if they had never been enqueued."""
        return in_steps(self._run, lambda args, _: calls.operate.purge(name, args), **steps)

    def depth(self, name: str) -> Depth:
        """Count the jobs of a queue in each state; all zero if it is empty or unknown."""
        return self._run(calls.queues.depth(name))

    def depths(self) -> builtins.list[Depth]:
        """Count the jobs of every queue in each state, in one call."""
        return self._run(calls.queues.depths())

    def depth_by_priority(self, name: str) -> builtins.list[PriorityDepth]:
        """Count the waiting and running jobs of each priority, the highest priority first."""
        return self._run(calls.queues.depth_by_priority(name))

    def drain_estimate(self, name: str, span: Seconds = 300.0) -> DrainEstimate:
        """Estimate when a queue will be empty, if it goes on as in the last ``span`` seconds."""
        return self._run(calls.queues.drain_estimate(name, span))

    def settings(self, name: str) -> builtins.list[SettingInfo]:
        """Return each setting of a queue, and where its value comes from."""
        return self._run(calls.queues.queue_settings(name))

    def shards(self, name: str | None = None) -> builtins.list[Shard]:
        """Return exclusive queues and shards, and the worker that holds each."""
        return self._run(calls.shards.shards(name))

    def set_strict(self, strict: bool) -> None:
        """Refuse enqueues to queues that do not exist, or let an enqueue make its queue."""
        self._run(calls.queues.set_strict(strict))
