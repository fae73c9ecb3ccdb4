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
    """One process start. The same name twice is two members: a restart takes over no leases.

    ``on_stop`` is called once, when a heartbeat is told that somebody asks this process to stop.
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
        self._news = False
        self._load = Load()
        self._on_stop = on_stop
        self._is_asked = False
        self._database = database

    async def register(self) -> int:
        """Enter the registry; the number we are shown under. Verbs know us by ``secret``."""
        facts = {**self.facts, "clock": time.time()}
        secret, number = await self._database.run(calls.workers.register_worker(self.name, facts, self._kinds))
        self.secret, self.number, self._news = secret, number, False
        return number

    async def beat(self) -> float:
        """Send a heartbeat, registering if need be; the step of a loop, so it returns when to beat again."""
        if self.secret is None:
            await self.register()
            return BEAT
        try:
            told = self._kinds if self._news else None
            call = calls.workers.beat_worker(self.secret, told, self._load.cpu(), memory())
            is_asked = await self._database.run(call)
        except UnknownWorker:
            await self.register()
            return BEAT
        self._news = False
        if is_asked and not self._is_asked:
            self._is_asked = True
            self._on_stop()
        return BEAT

    def is_meant(self, marks: Collection[str]) -> bool:
        """Whether a ring with one of these marks asks us to beat at once."""
        return self.secret is not None and hashlib.sha256(self.secret.bytes).hexdigest()[:16] in marks

    async def tell(self, kinds: Iterable[str]) -> None:
        """Say which kinds we run, if that has changed."""
        if (told := sorted(kinds)) != self._kinds:
            self._kinds, self._news = told, True
            await self.beat()

    async def retire(self) -> None:
        """Leave the registry. A process that cannot say so is forgotten after some days."""
        secret, self.secret, self.number = self.secret, None, None
        if secret is None:
            return
        try:
            await self._database.run(calls.workers.retire_worker(secret))
        except DibsError:
            return


def process_facts() -> dict[str, Any]:
    """What distinguishes this process from others."""
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
