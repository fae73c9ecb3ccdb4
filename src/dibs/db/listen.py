"""Bells: they listen for rings, which are hints to poll now. Correctness rests on polling alone.

One connection listens for a whole client. Losing it loses nothing: it reconnects, and each reconnection counts as a
ring for every queue, because rings may have been missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import psycopg

from dibs.db.connection import AsyncConnection, Connection, reachable
from dibs.runtime import end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LONGEST_BREAK = 5.0
_QUIET = 30.0
"""Seconds without a ring after which to check that the server still answers."""
_ANSWER_TIMEOUT = 5.0
"""Seconds that the server has to answer."""
_ENDING = 1.0
"""Seconds to wait for the end of listening."""
_WHO = "select pg_backend_pid()"
"""Behind a pooler this process id differs from the connection's. No notification arrives there, so we poll."""
_BELLS = "select number::text, queue from dibs.bells()"
"""The number of each queue. Rings carry numbers, because every login may listen, and names may be secret."""


_STOP_RING = "stop "
"""The beginning of a ring that names a run, by its mark, and not a queue: its holder is asked to stop it."""


class _Rings:
    """Counts the rings of each queue, and the reconnections, which may have missed rings of any queue."""

    def __init__(self, stop: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        self.pid = os.getpid()
        self._stop = stop
        self._rings: Counter[str] = Counter()
        self._reconnections = 0
        self._names: dict[str, str] = {}
        """The queue of each number that rings carry; empty if it is hidden from us."""

    def rings_of(self, queues: Sequence[str]) -> int:
        """Return the number of rings for these queues so far."""
        return self._reconnections + sum(self._rings[q] for q in queues)

    def _count(self, queue: str | None) -> None:
        if queue is None:
            self._reconnections += 1
        else:
            self._rings[queue] += 1

    def _of_queues(self, rung: Sequence[str]) -> list[str]:
        """Return the rings of queues. Pass those of runs on to ``stop``."""
        if marks := [text.removeprefix(_STOP_RING) for text in rung if text.startswith(_STOP_RING)]:
            self._stop(marks)
        return [text for text in rung if not text.startswith(_STOP_RING)]

    def _learn(self, known: Sequence[tuple[str, str]], rung: Sequence[str] = ()) -> None:
        """Remember the queue of each number. A rung number without a queue gets none: that queue is hidden from us."""
        self._names |= dict.fromkeys(rung, "") | dict(known)

    def _knows(self, rung: Sequence[str]) -> bool:
        return all(number in self._names for number in rung)


def _pause(tries: int) -> float:
    return random.uniform(0, min(_LONGEST_BREAK, 0.05 * 2 ** min(tries, 8)))  # noqa: S311


class Bell(_Rings):
    """Listens in a thread."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._listening = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, timeout: float) -> None:
        """Begin to listen, unless already listening. Wait until it does, or until the timeout."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="dibs-bell", daemon=True)
                self._thread.start()
        self._listening.wait(timeout)

    def wait(self, queues: Sequence[str], since: int, timeout: float) -> bool:
        """Wait until these queues have had more than ``since`` rings. Return false if time or the bell ends first."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or self.rings_of(queues) > since, timeout)
            return self.rings_of(queues) > since

    def stop(self) -> None:
        """Stop listening, and end the waits."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_ENDING)

    def _listen(self) -> None:
        tries = 0
        while not self._stopping.is_set():
            with contextlib.suppress(psycopg.Error):
                with Connection.connect(reachable(self._dsn, _ANSWER_TIMEOUT), autocommit=True) as conn:
                    conn.answer_timeout = _ANSWER_TIMEOUT
                    if conn.execute(_WHO).fetchone() != (conn.info.backend_pid,):
                        self._listening.set()
                        return
                    self._learn(conn.execute(_BELLS).fetchall())
                    conn.execute("listen dibs")
                    tries = 0
                    self._ring(None)
                    self._listening.set()
                    while not self._stopping.is_set():
                        self._hear(conn)
            tries += 1
            self._stopping.wait(_pause(tries))

    def _hear(self, conn: Connection) -> None:
        """Wait for a ring. After a while without one, check that the server still answers."""
        conn.answer_timeout = None
        rung: list[str] = []
        until = time.monotonic() + _QUIET
        while not rung and time.monotonic() < until and not self._stopping.is_set():
            rung = [note.payload for note in conn.notifies(timeout=0.2, stop_after=1)]
        conn.answer_timeout = _ANSWER_TIMEOUT
        if not rung:
            conn.execute(_WHO)
        rung = self._of_queues(rung)
        if not self._knows(rung):
            self._learn(conn.execute(_BELLS).fetchall(), rung)
        for number in rung:
            self._ring(self._names[number])

    def _ring(self, queue: str | None) -> None:
        with self._changed:
            self._count(queue)
            self._changed.notify_all()


class AsyncBell(_Rings):
    """Listens in a task. ``stop`` is called with the marks of runs that were asked to stop."""

    def __init__(self, dsn: str, stop: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        super().__init__(stop)
        self._dsn = dsn
        self._changed = asyncio.Event()
        self._listening = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, timeout: float) -> None:
        """Begin to listen, unless already listening. Wait until it does, or until the timeout."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="dibs-bell")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._listening.wait(), timeout)

    async def wait(self, queues: Sequence[str], since: int, timeout: float) -> bool:
        """Wait until these queues have had more than ``since`` rings. Return false if the time is over before that."""
        try:
            async with asyncio.timeout(timeout):
                while self.rings_of(queues) <= since:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Stop listening, and end the waits."""
        if self._task is not None:
            await end([self._task], within=_ENDING)
        self.ring()

    async def _listen(self) -> None:
        tries = 0
        while True:
            with contextlib.suppress(psycopg.Error):
                async with await AsyncConnection.connect(
                    reachable(self._dsn, _ANSWER_TIMEOUT), autocommit=True
                ) as conn:
                    conn.answer_timeout = _ANSWER_TIMEOUT
                    if await (await conn.execute(_WHO)).fetchone() != (conn.info.backend_pid,):
                        self._listening.set()
                        return
                    self._learn(await (await conn.execute(_BELLS)).fetchall())
                    await conn.execute("listen dibs")
                    tries = 0
                    self.ring()
                    self._listening.set()
                    while True:
                        await self._hear(conn)
            tries += 1
            await asyncio.sleep(_pause(tries))

    async def _hear(self, conn: AsyncConnection) -> None:
        """Wait for a ring. After a while without one, check that the server still answers."""
        conn.answer_timeout = None
        rung = [note.payload async for note in conn.notifies(timeout=_QUIET, stop_after=1)]
        conn.answer_timeout = _ANSWER_TIMEOUT
        if not rung:
            await conn.execute(_WHO)
        rung = self._of_queues(rung)
        if not self._knows(rung):
            self._learn(await (await conn.execute(_BELLS)).fetchall(), rung)
        for number in rung:
            self.ring(self._names[number])

    def ring(self, queue: str | None = None) -> None:
        """Wake all that wait for this queue; for any queue if it is None."""
        self._count(queue)
        self._changed.set()
        self._changed.clear()
