"""The logging of a ``dibs worker``, and of the processes in which its handlers run."""

from __future__ import annotations

import json
import logging
import logging.config
import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from dibs.errors import InvalidArgument
from dibs.events import Events
from dibs.metrics.logs import EventLog, log_events

DICTIONARIES = {".json": json.loads, ".toml": tomllib.loads}
INI = {".ini", ".cfg", ".conf"}


class LogSetup(msgspec.Struct, frozen=True):
    """The logging of a worker: one format for all, unless the app has set up logging or a file configures it."""

    format: Literal["text", "json", "none"] = "text"
    level: str = "info"
    config: str | None = None

    def begin(self, events: Events) -> EventLog:
        """Log these events and the records of handlers, here and in the processes of handlers."""
        if self.config is not None:
            configure(Path(self.config))
        begun[:] = [self]
        if self.config is not None:
            return log_events(events, "none", level=logging.getLogger("dibs").getEffectiveLevel())
        return log_events(events, self.format, level=self.level, everything=not logging.getLogger().handlers)


begun: list[LogSetup] = []
"""The logging of this process, if dibs has set it up."""


@cache
def inherit(setup: LogSetup) -> None:
    """Set up the logging of a process that a worker started. A file that can no longer be read fails no job."""
    try:
        setup.begin(Events())
    except InvalidArgument as error:
        logging.getLogger("dibs").warning("%s", error)


def configure(path: Path) -> None:
    """Set up logging as a file says: a dictionary for ``dictConfig`` as JSON or TOML, or the INI of ``fileConfig``.

    Loggers that exist already stay enabled, unless a dictionary says otherwise: dibs and the app have made theirs.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix in INI:
            logging.config.fileConfig(path, disable_existing_loggers=False, encoding="utf-8")
        elif path.suffix in DICTIONARIES:
            logging.config.dictConfig({"disable_existing_loggers": False, **DICTIONARIES[path.suffix](text)})
        else:
            raise ValueError("its name must end in .json, .toml, .ini, .cfg or .conf")
    except Exception as error:
        cause = f": {error.__cause__}" if error.__cause__ else ""
        raise InvalidArgument(
            f"logging cannot be set up from {path}: {error}{cause}",
            hint="it is a dictionary for logging.config.dictConfig, as JSON or TOML, or an .ini for fileConfig",
        ) from error
