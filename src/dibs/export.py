"""Rows written as lines of CSV or of JSON."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Form = Literal["csv", "jsonl"]

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The beginnings of texts that a spreadsheet would run as a formula."""


def lines(form: Form, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Write rows as lines: of CSV, in the order of these names, or a JSON object each."""
    if form == "jsonl":
        return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)
    return csv_lines([row.get(name) for name in names] for row in rows)


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Write rows of values as lines of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def csv_cell(value: Any) -> str:
    """Return a value as it stands in CSV: empty for None, and JSON unless it is a text, number or time.

    A text that a spreadsheet would run gets an apostrophe before it, which it does not show.

    >>> csv_cell('=HYPERLINK("http://evil.example")')
    '\\'=HYPERLINK("http://evil.example")'
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    text = msgspec.json.encode(value).decode()
    return text[1:-1] if text.startswith('"') else text
