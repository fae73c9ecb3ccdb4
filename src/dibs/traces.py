"""Errors in one line. ``dibs._error_line`` does the same in SQL; a test compares them."""

from __future__ import annotations

import re

TRACE = "Traceback (most recent call last):"
GROUP_TRACE = "  + Exception Group Traceback (most recent call last):"
GROUP_SAID = re.compile(r"\n  \| ([^ \n][^\n]*)")
SAID = re.compile(r'\n +File "[^\n]*\n(?: [^\n]*\n)*([^ \n][^\n]*)')


def said(error: str) -> str:
    """Return the first line of an error. After a trace, return the line of its exception.

    In a long text only the first and last 8,000 characters are searched.
    """
    line: str
    ends = error if len(error) <= 16_000 else f"{error[:8000]}\n{error[-8000:]}"
    if error.startswith(TRACE) and (found := SAID.findall(ends)):
        line = found[-1]
        return line
    if error.startswith(GROUP_TRACE) and (group := GROUP_SAID.search(error)):
        line = group[1]
        return line
    return error.split("\n", 1)[0]
