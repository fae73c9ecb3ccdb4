"""Ends the process when it does not end by itself: a handler may block the event loop, or hang in a thread."""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
import time

from dibs.errors import HANDLERS_LEFT


class Guard:
    """Waits in a thread that needs nothing of the event loop."""

    def __init__(self) -> None:
        self._until = math.inf
        self._changed = threading.Condition()
        self._started = False

    def arm(self, within: float) -> None:
        """End the process after so many seconds; of several times the earliest counts."""
        with self._changed:
            self._until = min(self._until, time.monotonic() + within)
            self._changed.notify()
            if not self._started:
                self._started = True
                threading.Thread(target=self._watch, name="dibs-guard", daemon=True).start()

    def shorten(self, within: float) -> None:
        """Once it is armed, wait no longer than this."""
        if self._until < math.inf:
            self.arm(within)

    def disarm(self) -> None:
        """The process may live on."""
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
