"""Errors in one line. ``dibs._error_line`` does the same in SQL; a test compares them."""

from __future__ import annotations

import re

TRACE = "Traceback (most recent call last):"
SAID = re.compile(r'\n +File "[^\n]*\n(?: [^\n]*\n)*([^ \n][^\n]*)')


def said(error: str) -> str:
    """Return the first line of an error. If it begins with a trace, return the line after the last frame."""
    if error.startswith(TRACE) and (found := SAID.findall(error[-8000:])):
        line: str = found[-1]
        return line
    return error.split("\n", 1)[0]
