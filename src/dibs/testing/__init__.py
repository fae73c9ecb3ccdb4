"""Tools for tests of code that uses dibs.

A pytest plugin with a database for each test is in :mod:`dibs.testing.plugin`, which pytest loads by itself; nothing
here needs pytest. ``Clock`` is virtual time. ``drain`` runs all due jobs with a real worker, ``inline`` runs each job
when it is enqueued, ``perform`` runs one attempt without a database. ``assert_enqueued`` and ``refute_enqueued`` check
the enqueued jobs. ``at`` and ``run_worker`` inject failures at named points.
"""

from dibs.runtime.points import POINTS, Armed, crash_at
from dibs.runtime.points import armed as at
from dibs.testing._assert import Seen, assert_enqueued, enqueued, refute_enqueued
from dibs.testing._crash import Ended, run_worker
from dibs.testing._drain import Drained, HandlerFailed, adrain, drain
from dibs.testing._inline import inline
from dibs.testing._perform import Performed, perform
from dibs.testing._point import pointed
from dibs.testing.clock import Clock
from dibs.testing.template import Databases, databases

__all__ = [
    "POINTS",
    "Armed",
    "Clock",
    "Databases",
    "Drained",
    "Ended",
    "HandlerFailed",
    "Performed",
    "Seen",
    "adrain",
    "assert_enqueued",
    "at",
    "crash_at",
    "databases",
    "drain",
    "enqueued",
    "inline",
    "perform",
    "pointed",
    "refute_enqueued",
    "run_worker",
]
