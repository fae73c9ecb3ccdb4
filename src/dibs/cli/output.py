"""What people and programs read: text and tables, or one JSON document."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dibs.units import spoken

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDE = 1000
"""The width when output is piped: no line is wrapped or cut."""

STYLES = {
    "scheduled": "cyan",
    "ready": "blue",
    "blocked": "magenta",
    "running": "yellow",
    "succeeded": "green",
    "failed": "red",
    "exhausted": "red",
    "expired": "bright_black",
    "cancelled": "bright_black",
}
"""The colour of each state."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Output:
    """Standard output for answers, standard error for everything said about them."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = _console(sys.stdout.isatty(), stderr=False)
        self.err = _console(sys.stderr.isatty(), stderr=True)

    def say(self, text: str, style: str = "") -> None:
        """A line of an answer."""
        self.out.print(Text(clean(text), style), soft_wrap=True)

    def note(self, text: str, style: str = "dim") -> None:
        """A line about the answer; never in the way of a pipe."""
        if not self.as_json:
            self.err.print(Text(clean(text), style), soft_wrap=True)

    def json(self, value: Any) -> None:
        """One JSON document, on one line."""
        sys.stdout.write(msgspec.json.encode(plain(value)).decode() + "\n")
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Rows under a heading. A column named ``>n`` holds numbers; a state gets its colour."""
        shown = Table(box=box.SIMPLE_HEAD if self.out.is_terminal else None, pad_edge=False, header_style="bold")
        for name in columns:
            number = name.startswith(">")
            shown.add_column(name.lstrip(">"), justify="right" if number else "left", no_wrap=name != "reason")
        for row in rows:
            shown.add_row(*(_cell(value) for value in row))
        self._show(shown)

    def facts(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Names and values, one to a line."""
        shown = Table.grid(padding=(0, 2))
        for name, value in pairs:
            shown.add_row(Text(name, "bold"), _cell(value))
        self._show(shown)

    def _show(self, table: Table) -> None:
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as text:
            self.out.print(table)
        sys.stdout.writelines(line.rstrip() + "\n" for line in text.get().splitlines())


def _console(terminal: bool, *, stderr: bool) -> Console:
    width = None if terminal else WIDE
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def _cell(value: Any) -> Text:
    text = shown(value)
    return Text(text, STYLES.get(text, ""))


def shown(value: Any) -> str:
    """A value as people read it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
        case timedelta():
            return spoken(value)
        case _:
            return clean(str(value))


def read_time(text: str | None) -> datetime | None:
    """A time out of a JSON document."""
    return None if text is None else datetime.fromisoformat(text)


def clean(text: str) -> str:
    """Without control characters: what lies in a queue must not steer the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def plain(value: Any) -> Any:
    """A value as JSON holds it; durations are seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    match value:
        case dict():
            return {str(name): plain(v) for name, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case timedelta():
            return value.total_seconds()
        case _:
            return value


def first_line(text: str | None) -> str | None:
    """The first line of an error; the trace below it is left out."""
    return text.split("\n", 1)[0] if text else text
