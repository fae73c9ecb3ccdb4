"""``dibs grants``: who may do what, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import click

from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.db.grants import check as find_faults
from dibs.db.grants import holders

COLUMNS = ("role", "logs in", "may do what these may", "queues", "functions")


@click.command(cls=Command)
@click.option("--check", is_flag=True, help="Look for what is wrong; the exit code is 1 if something is.")
@pass_session
def grants(session: Session, check: bool) -> int:
    """Show which roles may do what, or check them."""
    if check:
        return _check(session)
    found = holders(session.find())
    session.show(
        found, COLUMNS, _row, empty="no login has a dibs role yet; grant one with: dibs grant worker LOGIN --create"
    )
    return Exit.OK


def _row(h: dict[str, Any]) -> tuple[Any, ...]:
    queues, functions = ", ".join(h["queues"] or ["all"]), ", ".join(h["functions"]) or None
    return h["role"], h["login"], ", ".join(h["roles"]), queues, functions


def _check(session: Session) -> int:
    faults = find_faults(session.find())
    if session.as_json:
        session.output.json([{"what": what, "where": where} for what, where in faults])
    elif faults:
        session.output.table(("what is wrong", "reason"), faults)
    else:
        session.output.say("nothing is wrong: no function is PUBLIC's, every definer is pinned, no table is open")
    return Exit.FAILED if faults else Exit.OK
