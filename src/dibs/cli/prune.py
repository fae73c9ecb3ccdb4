"""Drops days and rows past their retention now, for ``dibs maintain --prune-only``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.cli.exits import Exit
from dibs.cli.progress import counting
from dibs.db import calls

if TYPE_CHECKING:
    from dibs.cli.session import Session

MOST = 10_000
"""The number of rows that one step deletes at most."""
KEPT = ("locked", "crowded")
"""The outcomes of a day that stays. Every further step would answer the same."""


def prune(session: Session) -> Exit:
    """Drop days, and delete rows, that are past their queue's retention, until none is left that can go now."""
    days = rows = 0
    with session.client() as client:
        total = client._run(calls.upkeep.days_due())
        with counting(session.output, "days dropped", total) as advance:
            while (step := client.upkeep.prune(MOST)) and any(one.outcome not in KEPT for one in step):
                dropped = sum(one.outcome == "dropped" for one in step)
                days, rows = days + dropped, rows + sum(one.rows or 0 for one in step)
                advance(dropped)
    locked, crowded = ([one.name for one in step if one.outcome == outcome] for outcome in KEPT)
    if session.as_json:
        session.output.json({"days": days, "rows": rows, "locked": locked, "crowded": crowded})
    else:
        session.output.say(f"{days} days dropped, {rows} rows deleted", "green")
        if locked:
            session.output.say(f"in use, so try again later: {', '.join(locked)}", "yellow")
        if crowded:
            session.output.say(f"too many jobs to drop it: {', '.join(crowded)}", "yellow")
    return Exit.FAILED if locked else Exit.OK
