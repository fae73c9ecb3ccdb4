"""Formats of a log line: text for people, JSON for machines; both name the run that wrote it."""

from __future__ import annotations

import json
import logging
import re
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from dibs.client.context import running
from dibs.metrics.lines import facts_of

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, end a line, turn the direction of text, or cannot be encoded (surrogates)."""
_INDENT = "\n    "
_ATTRIBUTES = {"job_id": "job_id", "job_kind": "kind", "job_queue": "queue", "job_attempt": "attempt"}


class JobFilter(logging.Filter):
    """A filter for your own logging: adds ``job_id``, ``job_kind``, ``job_queue`` and ``job_attempt`` to records.

    They name the run in which the record was made, or the run that an event is about; without a run they are empty.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes, and let the record pass."""
        facts = _facts(record)
        for attribute, fact in _ATTRIBUTES.items():
            setattr(record, attribute, facts.get(fact, ""))
        return True


class TextFormat(logging.Formatter):
    """Time, level and sentence. Texts from jobs can neither look like another line nor control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line; a traceback or a message of several lines adds more."""
        facts = _facts(record)
        text = record.getMessage()
        if "event" not in facts:
            text = f"{record.name}: {text}{_run(facts)}"
        if trace := _trace(self, record):
            text = f"{text}\n{trace}"
        return f"{_time(record)} {record.levelname} {text if text.isprintable() else _clean(text)}"


class JsonFormat(logging.Formatter):
    """One JSON document on one line, whatever the record says."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the facts of an event; of other records, their place in the code and their run."""
        facts = _facts(record)
        document: dict[str, Any] = {"ts": _time(record), "level": record.levelname.lower()}
        if "event" not in facts:
            document["logger"] = record.name
        document |= facts
        document["message"] = record.getMessage()
        if trace := _trace(self, record):
            document["traceback"] = trace
        return _encode(document)


def _encode(document: dict[str, Any]) -> str:
    with suppress(UnicodeError, TypeError, ValueError, RecursionError):
        return msgspec.json.encode(document, enc_hook=str).decode()
    with suppress(ValueError, RecursionError):  # A lone surrogate, or a key that is neither text nor number.
        return json.dumps(document, default=str, skipkeys=True)
    # A fact is nested too deeply, or contains itself.
    return json.dumps({name: value for name, value in document.items() if isinstance(value, str | float | int)})


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    """Return the facts of a record: those of its event, or the run in which it was logged."""
    facts: dict[str, Any] | None = record.__dict__.get("dibs")
    if facts is None:
        here = running()
        facts = {} if here is None else facts_of(here.job)
        if here is not None and len(here.batch) > 1:
            facts["batch"] = len(here.batch)
        record.__dict__["dibs"] = facts
    return facts


def _run(facts: dict[str, Any]) -> str:
    if not facts:
        return ""
    batch = f", the first of {facts['batch']}" if "batch" in facts else ""
    return f" [job {facts['job_id']} {facts['kind']}{batch}]"


def _trace(format: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the traceback of a record and its stack, as far as it has them."""
    trace = format.formatException(record.exc_info) if record.exc_info else record.exc_text
    stack = format.formatStack(record.stack_info) if record.stack_info else None
    return "\n".join(part for part in (trace, stack) if part)


def _clean(text: str) -> str:
    visible = _CONTROL.sub(lambda found: _escaped(ord(found[0])), text.rstrip("\n"))
    return visible.replace("\n", _INDENT)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _time(record: logging.LogRecord) -> str:
    second, ms = divmod(int(record.created * 1000), 1000)
    return f"{_second(second)}.{ms:03d}Z"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
