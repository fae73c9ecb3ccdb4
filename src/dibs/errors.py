"""Every error dibs raises, as one tree.

::

    DibsError
    ├── JobError                      a request about a job cannot be carried out
    │   ├── LeaseLost        DI001    the token is not the one that holds the job
    │   ├── UnknownJob       DI002    no such job: never committed, or pruned
    │   ├── JobEnded         DI003    the job has already ended
    │   ├── JobRunning       DI004    the job runs now, so it cannot be changed
    │   ├── UnexpectedResult          the result does not have the type that the task returns
    │   └── WaitTimeout               the job had not ended when a wait for it did; also a TimeoutError
    ├── Refused                       the request was not accepted; nothing was changed
    │   ├── InvalidArgument  DI010    a value is out of range or malformed; also a ValueError
    │   ├── InvalidPolicy    23514    a policy breaks a named constraint
    │   ├── UnknownQueue     DI011    no such queue, where there must be one
    │   ├── PayloadTooLarge  DI012    above the queue's payload limit
    │   ├── IdOutOfRange     DI013    a job id from the future or from before retention
    │   ├── IdTaken          23505    another transaction is enqueueing a job of that id now
    │   ├── DuplicateJob     DI040    another job has the dedup key, and on_duplicate is refuse
    │   ├── QueueFull        DI041    too many jobs wait, or for too long
    │   ├── UnknownWorker    DI014    no such worker is registered
    │   ├── UnknownTask      DI015    no worker has registered such a task
    │   ├── UnknownSchedule  DI050    no such schedule
    │   ├── InvalidSchedule  DI051    a schedule's rule makes no sense
    │   ├── UnknownLimit     DI030    no such limit was set
    │   ├── ShardNotHeld     DI060    only the worker that holds the queue or shard may claim from it
    │   ├── StillSharded     DI061    a queue with shards cannot be an ordinary one again
    │   ├── QueueInUse       DI062    a queue that has jobs, a schedule or a role confined to it alone cannot be dropped
    │   ├── NotAllowed       DI070    the function is not on the allow-list
    │   └── UnfitFunction    DI071    the function is not one that may be on it
    ├── BrokenContract       DI072    a function did not answer with an envelope
    ├── LossPrevented        DI090    a defect of dibs would have lost jobs; the call was undone
    ├── NotPermitted         42501    the role lacks the right to this verb
    ├── WrongIsolation       DI020    the verb works in READ COMMITTED only
    ├── SchemaError                   the database's schema does not fit this client
    │   ├── SchemaMissing    3F000    dibs is not installed there
    │   ├── SchemaTooOld              run ``dibs migrate``
    │   ├── SchemaTooNew              upgrade the dibs package
    │   ├── SchemaLocked              another migration holds the lock
    │   └── SchemaInUse               stop what uses it before you uninstall
    ├── ServerError                   PostgreSQL refused for another reason (disk full, timeout, …)
    ├── ConnectionLost                the database cannot be reached, or went away
    │   └── PoolExhausted             all connections of the client were in use
    ├── LoginRefused         28000    the server refuses the role, its password or the database's name
    ├── ClientClosed                  the client was closed before the call
    ├── HandlersLeft                  a worker ended, and left handlers behind that would not stop
    └── EmbeddedError                 the embedded PostgreSQL cannot start

``BlocksLoop`` is a warning, not an error: a RuntimeWarning.

The codes are SQLSTATEs, so a client in any language can tell them apart.
"""

from __future__ import annotations


class DibsError(Exception):
    """The root of every error dibs raises."""

    sqlstate: str | None = None
    """The SQLSTATE the SQL functions raise for it, where they do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class JobError(DibsError):
    """A request about a job cannot be carried out."""


class LeaseLost(JobError):
    """The token given is not the one that holds the job now."""

    sqlstate = "DI001"


class UnknownJob(JobError):
    """There is no such job: it was never committed, or it was pruned."""

    sqlstate = "DI002"


class JobEnded(JobError):
    """The job has already ended."""

    sqlstate = "DI003"


class JobRunning(JobError):
    """The job runs now, so it cannot be changed."""

    sqlstate = "DI004"


class UnexpectedResult(JobError):
    """A job's result does not have the type that its task returns."""


class WaitTimeout(JobError, TimeoutError):
    """The job had not ended when the time given to a wait was over."""


class Refused(DibsError):
    """The request was not accepted, and nothing was changed."""


class InvalidArgument(Refused, ValueError):
    """A value is out of range or malformed."""

    sqlstate = "DI010"


class InvalidPolicy(Refused):
    """A policy breaks one of the schema's named constraints."""

    sqlstate = "23514"


class UnknownQueue(Refused):
    """There is no queue of that name, and this verb or strict mode needs one."""

    sqlstate = "DI011"


class PayloadTooLarge(Refused):
    """The payload is above its queue's limit."""

    sqlstate = "DI012"


class IdOutOfRange(Refused):
    """A job id made by the client is from the future, or older than retention."""

    sqlstate = "DI013"


class IdTaken(Refused):
    """Another transaction enqueued a job of that id at the same moment; asked again, it is a duplicate."""

    sqlstate = "23505"


class DuplicateJob(Refused):
    """Another job has the dedup key, and ``on_duplicate`` is ``refuse``."""

    sqlstate = "DI040"


class QueueFull(Refused):
    """The queue has reached its maximum depth, or its oldest job has waited too long."""

    sqlstate = "DI041"


class UnknownWorker(Refused):
    """No such worker is registered."""

    sqlstate = "DI014"


class UnknownTask(Refused):
    """No worker has registered such a task."""

    sqlstate = "DI015"


class ShardNotHeld(Refused):
    """Only the worker that holds an exclusive queue or a shard may claim from it."""

    sqlstate = "DI060"


class StillSharded(Refused):
    """A queue that was split into shards cannot be an ordinary queue again."""

    sqlstate = "DI061"


class QueueInUse(Refused):
    """A queue that has jobs, kept ones included, a schedule, or a role confined to it alone, cannot be dropped."""

    sqlstate = "DI062"


class UnknownSchedule(Refused):
    """There is no schedule of that name."""

    sqlstate = "DI050"


class InvalidSchedule(Refused):
    """A schedule's rule, time zone or job makes no sense."""

    sqlstate = "DI051"


class UnknownLimit(Refused):
    """No limit of that name was set."""

    sqlstate = "DI030"


class NotAllowed(Refused):
    """The function is not on the allow-list of functions that may be run."""

    sqlstate = "DI070"


class UnfitFunction(Refused):
    """The function is not one that may be allowed, or is no longer what was allowed."""

    sqlstate = "DI071"


class BrokenContract(DibsError):
    """A function of the database answered with something that is not an envelope."""

    sqlstate = "DI072"


class LossPrevented(DibsError):
    """A defect of dibs would have lost jobs, so the call was undone: nothing was changed."""

    sqlstate = "DI090"


class NotPermitted(DibsError):
    """The database role lacks the right to this verb."""

    sqlstate = "42501"


class WrongIsolation(DibsError):
    """The verb works in READ COMMITTED transactions only."""

    sqlstate = "DI020"


class SchemaError(DibsError):
    """The schema in the database does not fit this client."""


class SchemaMissing(SchemaError):
    """dibs is not installed in this database."""

    sqlstate = "3F000"


class SchemaTooOld(SchemaError):
    """The schema is older than this client needs."""


class SchemaTooNew(SchemaError):
    """The schema is newer than this client knows."""


class SchemaLocked(SchemaError):
    """Another migration held the lock for longer than the timeout given."""


class SchemaInUse(SchemaError):
    """Workers run, or something of others depends on the schema that is to be dropped."""


class ServerError(DibsError):
    """PostgreSQL refused for another reason: disk full, statement timeout, deadlock and the like."""


class ConnectionLost(DibsError):
    """The database cannot be reached, or went away during the call."""


class PoolExhausted(ConnectionLost):
    """All connections of the client were in use, for as long as it waits."""


class LoginRefused(DibsError):
    """The server refuses the role, its password, or the name of the database; trying again does not help."""

    sqlstate = "28000"


class ClientClosed(DibsError):
    """The client was closed; make a new one."""


class HandlersLeft(DibsError):
    """A worker ended, and left handlers behind that went on though they were told to stop."""


HANDLERS_LEFT = 5
"""The exit status of a process whose handlers would not stop."""


class EmbeddedError(DibsError):
    """The embedded PostgreSQL cannot be found or started."""


class BlocksLoop(RuntimeWarning):
    """A warning: a blocking enqueue was called on an event loop, where nothing else runs until it is answered."""


DATA = ("22", "23", "54")
"""The classes of SQLSTATEs that blame the data sent: data exceptions, broken constraints, exceeded limits."""


def blames_data(error: BaseException) -> bool:
    """Return True if the data sent caused the error, so that sending it again fails again.

    Any other may pass: a lost connection, a lock or a timeout, a full disk, a server that is read-only for a while.
    """
    if isinstance(error, IdTaken | QueueFull):
        return False
    if isinstance(error, Refused) or not isinstance(error, DibsError):
        return isinstance(error, Refused | ValueError | TypeError | RecursionError)
    return (error.sqlstate or "").startswith(DATA)


def _leaves(root: type[DibsError]) -> list[type[DibsError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _leaves(child))]


BY_SQLSTATE: dict[str, type[DibsError]] = {cls.sqlstate: cls for cls in _leaves(DibsError) if cls.sqlstate}
"""The exception of each SQLSTATE."""
