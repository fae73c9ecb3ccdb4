"""Exit codes and their meaning."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from dibs.errors import (
    HANDLERS_LEFT,
    ConnectionLost,
    EmbeddedError,
    HandlersLeft,
    LoginRefused,
    UnknownJob,
    UnknownQueue,
    UnknownSchedule,
)

if TYPE_CHECKING:
    from dibs.errors import DibsError


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    FAILED = 1  # refused, or it did not work
    USAGE = 2  # the command line makes no sense
    UNREACHABLE = 3  # no database to speak to
    NOT_FOUND = 4  # no such job, queue or schedule
    LEFT = HANDLERS_LEFT  # a worker ended, but some of its handlers would not
    ASKED = 6  # one of several worker processes was asked to stop by an operator: its parent starts no other
    INTERRUPTED = 130  # by Ctrl-C, as shells have it


def exit_code(error: DibsError) -> Exit:
    """Return the exit code of an error."""
    if isinstance(error, ConnectionLost | EmbeddedError | LoginRefused):
        return Exit.UNREACHABLE
    if isinstance(error, UnknownJob | UnknownQueue | UnknownSchedule):
        return Exit.NOT_FOUND
    if isinstance(error, HandlersLeft):
        return Exit.LEFT
    return Exit.FAILED
