"""How a line of a log is written: for people, or as JSON for machines."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TextFormat(logging.Formatter):
    """Time, level and sentence. What comes from jobs cannot break a line or write on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; only a traceback makes more of it."""
        said = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", record.getMessage())
        line = f"{_time(record)} {record.levelname} {said}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormat(logging.Formatter):
    """One JSON document on one line, whatever it says."""

    def format(self, record: logging.LogRecord) -> str:
        """The facts of an event; of other records, what they say and where they come from."""
        document: dict[str, Any] = {"ts": _time(record), "level": record.levelname.lower()}
        facts = getattr(record, "dibs", None)
        document |= {"logger": record.name} if facts is None else facts
        document["message"] = record.getMessage()
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
