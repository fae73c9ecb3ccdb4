"""Jobs and the like written out, as lines of CSV or of JSON."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Form = Literal["csv", "jsonl"]

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a text begins that a spreadsheet would take for a formula, and run."""


def lines(form: Form, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Rows as lines: of CSV, in the order of these names; or a JSON object each."""
    if form == "jsonl":
        return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)
    return csv_lines([row.get(name) for name in names] for row in rows)


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Rows of values as lines of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def csv_cell(value: Any) -> str:
    """A value as it stands in CSV: nothing for None, and JSON for what is no text, number or time.

    A text that a spreadsheet would run gets an apostrophe before it, which it does not show.

    >>> csv_cell('=HYPERLINK("http://evil.example")')
    '\\'=HYPERLINK("http://evil.example")'
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    told = msgspec.json.encode(value).decode()
    return told[1:-1] if told.startswith('"') else told
