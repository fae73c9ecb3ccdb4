"""Ends a process that does not end by itself, because a handler blocks the event loop or hangs in a thread."""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
import time

from dibs.errors import HANDLERS_LEFT


class Guard:
    """Ends the process after a time, from a thread that does not need the event loop."""

    def __init__(self) -> None:
        self._until = math.inf
        self._changed = threading.Condition()
        self._started = False

    def arm(self, within: float) -> None:
        """End the process after so many seconds. If called again, the earlier time counts."""
        with self._changed:
            self._until = min(self._until, time.monotonic() + within)
            self._changed.notify()
            if not self._started:
                self._started = True
                threading.Thread(target=self._watch, name="dibs-guard", daemon=True).start()

    def shorten(self, within: float) -> None:
        """If the guard is armed, end the process after at most so many seconds."""
        if self._until < math.inf:
            self.arm(within)

    def disarm(self) -> None:
        """Let the process live on."""
        with self._changed:
            self._until = math.inf
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while (left := self._until - time.monotonic()) > 0:
                self._changed.wait(min(left, 3600.0))
        sys.stderr.write("dibs: this process did not end in time and is ended now; it was here:\n")
        sys.stderr.flush()
        faulthandler.dump_traceback(file=sys.__stderr__ or 2)
        os._exit(HANDLERS_LEFT)
