"""Read a payload from the argument, a file or standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.types import JSON

if TYPE_CHECKING:
    from typing import BinaryIO


def read_payload(argument: str | None, file: BinaryIO | None, *, raw: bool) -> Any:
    """Return the payload: bytes if ``raw``, otherwise the value of the JSON; None without one."""
    if argument is None and file is None:
        return None
    if file is not None:
        content = file.read()
    elif argument == "-":
        content = sys.stdin.buffer.read()
    else:
        content = (argument or "").encode()
    return content if raw else as_json(content)


def as_json(content: bytes) -> Any:
    """Decode JSON; refuse anything else with a readable error."""
    try:
        return JSON.convert(content.decode(), None, None)
    except UnicodeDecodeError:
        raise click.UsageError("the payload is not text; send it with --bytes") from None
