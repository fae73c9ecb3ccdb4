"""The events that dibs reports, for logs, metrics, traces and your own code.

An event is a fact that has just happened. Subscribers of its class are called with it in the same place: on the
event loop or in a worker's thread. A subscriber should be quick. If it raises, the error is logged and ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.job import Claimed
    from dibs.states import Answer, Outcome, State

log = logging.getLogger("dibs.events")


class Event(msgspec.Struct, frozen=True):
    """A fact that has just happened."""


class JobEnqueued(Event, frozen=True):
    """An enqueue was answered; ``outcome`` is ``enqueued``, or ``duplicate`` of the job with this id."""

    id: UUID
    queue: str
    kind: str
    outcome: Answer


class JobsClaimed(Event, frozen=True):
    """A claim came back, with ``count`` jobs or none."""

    queues: tuple[str, ...]
    count: int
    took: float


class JobStarted(Event, frozen=True):
    """A handler is about to be called; ``waited`` is how long the job was due before that."""

    job: Claimed
    waited: float


class RunEnded(Event, frozen=True):
    """A run ended and its outcome is recorded.

    ``state`` is where the job went (``succeeded``, ``ready``, ``scheduled``, or a dead one); ``ran`` is how long the
    handler took; ``error`` is the first line of what it raised, and ``traceback`` the rest of it.
    """

    job: Claimed
    outcome: Outcome
    state: State
    ran: float
    error: str | None = None
    traceback: str | None = None


class RunLost(Event, frozen=True):
    """A job was no longer ours: its lease ran out, or could not be renewed in time. Its handler was stopped."""

    job: Claimed


class LeasesRenewed(Event, frozen=True):
    """The keeper renewed leases."""

    count: int
    took: float


class KindUnknown(Event, frozen=True):
    """A job was left for other workers, because this app has no task of its kind."""

    job: Claimed


class NotInForce(Event, frozen=True):
    """A declaration of the code is not in force: a ``limit``, whose task is not run until it is, or a ``schedule``.

    ``reason`` is a sentence that names the missing right and the remedy. Each is reported once.
    """

    what: str
    name: str
    reason: str


class OutcomesSent(Event, frozen=True):
    """The completer sent a batch of outcomes of one verb."""

    verb: str
    count: int
    took: float


class WorkerStarted(Event, frozen=True):
    """A worker is registered under ``number`` and begins to claim."""

    number: int
    queues: tuple[str, ...]


class StopAsked(Event, frozen=True):
    """Somebody asked this worker to stop: an operator, by ``dibs workers stop``, the dashboard or SQL."""

    number: int


class WorkerStopping(Event, frozen=True):
    """A worker claims no more; ``running`` handlers have the grace time to finish."""

    running: int


class WorkerStopped(Event, frozen=True):
    """A worker is done; ``ended`` jobs ended in it."""

    ended: int


class UpkeepDone(Event, frozen=True):
    """A chore of the upkeep did something: ``rescue``, ``expire``, ``make_days``, ``prune``, ``forget`` and so on."""

    chore: str
    count: int
    counts: Mapping[str, int] = {}


class Trouble(Event, frozen=True):
    """A step failed and will be tried again: ``where`` names the step, ``error`` is the reason."""

    where: str
    error: BaseException


class PoolerFound(Event, frozen=True):
    """A worker found a pooler between itself and the database, so it looks for jobs every ``poll`` seconds."""

    poll: float


class OutageBegan(Event, frozen=True):
    """The database has not answered for ``silence`` seconds; ``error`` says why, if a connection was lost."""

    silence: float
    error: BaseException | None = None


class OutageEnded(Event, frozen=True):
    """The database answers again, ``after`` that many seconds."""

    after: float


class ChildStarted(Event, frozen=True):
    """The parent of several worker processes started one."""

    pid: int


class ChildDied(Event, frozen=True):
    """A worker process ended by itself; ``status`` is its exit code, or minus the signal that killed it."""

    pid: int
    status: int


class ChildLeft(Event, frozen=True):
    """A worker process was asked to stop by an operator; no other is started in its place."""

    pid: int


class CodeChanged(Event, frozen=True):
    """Source files changed, and the worker processes restart (``--reload``)."""

    files: tuple[str, ...]


E = TypeVar("E", bound=Event)
Subscriber = Callable[[E], None]


class Events:
    """The subscribers to each class of events."""

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], tuple[Subscriber[Any], ...]] = {}

    def on(self, kind: type[E], subscriber: Subscriber[E]) -> None:
        """Call ``subscriber`` with each event of this class from now on."""
        self._subscribers[kind] = (*self._subscribers.get(kind, ()), subscriber)

    def off(self, kind: type[E], subscriber: Subscriber[E]) -> None:
        """Stop calling it."""
        self._subscribers[kind] = tuple(s for s in self._subscribers.get(kind, ()) if s != subscriber)

    def wants(self, kind: type[Event]) -> bool:
        """Return True if the class has subscribers: otherwise the event need not be made."""
        return bool(self._subscribers.get(kind))

    def tell(self, event: Event) -> None:
        """Call every subscriber to the event's class."""
        for subscriber in self._subscribers.get(type(event), ()):
            try:
                subscriber(event)
            except Exception:
                log.exception("a subscriber to %s failed", type(event).__name__)
