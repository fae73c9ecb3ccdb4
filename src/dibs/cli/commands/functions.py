"""``dibs functions``: which functions of the database a worker may run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.command import Listing
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION
from dibs.db import calls

if TYPE_CHECKING:
    from datetime import timedelta

COLUMNS = ("name", "timeout", "owner", "allowed", "by", "reason")


@click.group(cls=Listing)
@pass_session
def functions(session: Session) -> None:
    """List the database functions that workers may run; allow or disallow one."""
    with session.client() as client:
        found = client._run(calls.channels.functions())
    empty = "no function is allowed yet; allow one with: dibs functions allow 'shop.close_order(jsonb)'"
    session.show(found, COLUMNS, lambda f: (*list(f.values())[:5], f["flaw"] or "may be run"), empty=empty)


@functions.command()
@click.argument("function", metavar="SCHEMA.FUNCTION(JSONB)")
@click.option("--timeout", type=DURATION, help="How long it may run; 30s without it.")
@pass_session
def allow(session: Session, function: str, timeout: timedelta | None) -> None:
    """Let workers run a function: one of jsonb that returns jsonb."""
    signature = function if "(" in function else f"{function}(jsonb)"
    with session.client() as client:
        name = client._run(calls.channels.allow_function(signature, timeout))
    if session.as_json:
        session.output.json({"name": name})
    else:
        session.output.say(f"{name} may be run; grant execute on it to the worker's role")


@functions.command()
@click.argument("function", metavar="SCHEMA.FUNCTION")
@pass_session
def disallow(session: Session, function: str) -> int:
    """Take a function off the list."""
    name = function.removesuffix("(jsonb)")
    with session.client() as client:
        gone = client._run(calls.channels.disallow_function(name))
    if session.as_json:
        session.output.json({"name": name, "was_allowed": gone})
    else:
        session.output.say(f"{name} may no longer be run" if gone else f"{name} was not on the list")
    return 0 if gone else 1
