"""The plans of the statements inside functions, as the server made them."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

HOT = r"(ready|blocked|lease|job|attempt|fingerprint|dead)(_default|_\d{8})?"


@dataclass(frozen=True)
class Plan:
    """One plan, as auto_explain printed it."""

    text: str

    @property
    def scanned_whole(self) -> list[str]:
        """The hot tables it reads from end to end."""
        return re.findall(rf"Seq Scan on ({HOT})\b", self.text)

    @property
    def rows(self) -> int:
        """How many rows its busiest node read, those that it threw away included."""
        most = 0
        for node in self.text.split("actual ")[1:]:
            found = re.match(r"(?:time=\S+ )?rows=([\d.]+) loops=(\d+)", node)
            removed = sum(int(n) for n in re.findall(r"Rows Removed by [\w ]+: (\d+)", node))
            most = max(most, int((float(found[1]) + removed) * int(found[2])) if found else 0)
        return most

    @property
    def buffers(self) -> int:
        """How many pages it touched."""
        found = re.search(r"Buffers: shared hit=(\d+)(?: read=(\d+))?", self.text)
        return sum(int(n or 0) for n in found.groups()) if found else 0


@contextlib.contextmanager
def explained(conn: psycopg.Connection[Any]) -> Iterator[list[Plan]]:
    """Collect the plan of every statement run in the block, those inside functions included."""
    plans: list[Plan] = []

    def note(diagnostic: Any) -> None:
        if "plan:" in diagnostic.message_primary:
            plans.append(Plan(diagnostic.message_primary))

    conn.add_notice_handler(note)
    conn.execute("load 'auto_explain'")
    for name, value in (
        ("auto_explain.log_nested_statements", "on"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_buffers", "on"),
        ("auto_explain.log_timing", "off"),
        ("auto_explain.log_min_duration", "0"),
        ("client_min_messages", "log"),
    ):
        conn.execute("select set_config(%s, %s, false)", (name, value))
    yield plans
    conn.execute("set auto_explain.log_min_duration = -1")
    conn.execute("reset client_min_messages")
    conn.remove_notice_handler(note)
