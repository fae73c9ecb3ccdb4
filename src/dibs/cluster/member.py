"""A process's entry in the registry of workers."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from dibs.cluster.load import Load, memory
from dibs.db import calls
from dibs.errors import DibsError, UnknownWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from dibs.db.database_async import AsyncDatabase

BEAT = 10.0
"""Seconds between two heartbeats."""


class Member:
    """Registers a process, and sends its heartbeats.

    Each start of a process is a new member, even with the same name: a restart takes over no leases. ``on_stop`` is
    called once, when a heartbeat is answered that an operator asks this process to stop.
    """

    def __init__(
        self,
        database: AsyncDatabase,
        name: str,
        facts: Mapping[str, Any] | None = None,
        kinds: Iterable[str] | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.secret: UUID | None = None
        self.number: int | None = None
        self.name = name
        self.facts = {**process_facts(), **(facts or {})}
        self._kinds = None if kinds is None else sorted(kinds)
        self._kinds_changed = False
        self._load = Load()
        self._on_stop = on_stop
        self._is_stop_asked = False
        self._database = database

    async def register(self) -> int:
        """Enter the registry. Return the number to show; verbs take the ``secret`` instead."""
        facts = {**self.facts, "clock": time.time()}
        sent = self._kinds
        secret, number = await self._database.run(calls.workers.register_worker(self.name, facts, sent))
        self.secret, self.number = secret, number
        self._note_sent(sent)
        return number

    async def beat(self) -> float:
        """Send a heartbeat, or register. Return in how many seconds to beat again, as the step of a loop."""
        if self.secret is None:
            await self.register()
            return BEAT
        try:
            sent = self._kinds if self._kinds_changed else None
            call = calls.workers.beat_worker(self.secret, sent, self._load.cpu(), memory())
            is_stop_asked = await self._database.run(call)
        except UnknownWorker:
            await self.register()
            return BEAT
        self._note_sent(sent)
        if is_stop_asked and not self._is_stop_asked:
            self._is_stop_asked = True
            self._on_stop()
        return BEAT

    def _note_sent(self, kinds: list[str] | None) -> None:
        # set_kinds may have changed them while the call was under way: the next heartbeat sends those.
        if kinds is self._kinds:
            self._kinds_changed = False

    def is_marked(self, marks: Collection[str]) -> bool:
        """Return true if one of these marks of a notification is ours: it asks for a heartbeat at once."""
        return self.secret is not None and hashlib.sha256(self.secret.bytes).hexdigest()[:16] in marks

    async def set_kinds(self, kinds: Iterable[str]) -> None:
        """Send the kinds that this process runs, if they have changed."""
        if (runnable := sorted(kinds)) != self._kinds:
            self._kinds, self._kinds_changed = runnable, True
            await self.beat()

    async def retire(self) -> None:
        """Leave the registry. A process that cannot do so is removed after some days."""
        secret, self.secret, self.number = self.secret, None, None
        if secret is None:
            return
        try:
            await self._database.run(calls.workers.retire_worker(secret))
        except DibsError:
            return


def process_facts() -> dict[str, Any]:
    """Facts that tell this process from others."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "dibs": _release(),
    }


def _release() -> str:
    try:
        return version("dibs")
    except PackageNotFoundError:
        return "unknown"  # run from a copy of the source that was never installed
