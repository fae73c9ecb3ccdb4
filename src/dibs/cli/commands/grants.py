"""``dibs grants``: who may do what, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import click

from dibs.cli.command import Listing
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.db.grants import ROLES, Asked, holders
from dibs.db.grants import check as find_faults
from dibs.db.grants import grant as give_role

COLUMNS = ("role", "logs in", "may do what these may", "queues", "functions")


@click.group(cls=Listing)
@click.option("--check", is_flag=True, help="Look for what is wrong; the exit code is 1 if something is.")
@pass_session
def grants(session: Session, check: bool) -> int:
    """List which logins may do what, or check it; give a login a role.

    To take one away is PostgreSQL's own revoke: revoke dibs_worker from LOGIN.
    """
    if check:
        return _check(session)
    found = holders(session.find())
    empty = "no login has a dibs role yet; give one with: dibs grants give worker LOGIN --create"
    session.show(found, COLUMNS, _row, empty=empty)
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


@grants.command(short_help="Give a login its role, its queues and its functions.")
@click.argument("role", type=click.Choice(ROLES))
@click.argument("login")
@click.option("--queue", "queues", multiple=True, help="Confine it to this queue; more than once for several.")
@click.option("--function", "functions", multiple=True, help="Only this allowed function; a worker gets all.")
@click.option("--create", is_flag=True, help="Create the login first, without a password.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and show what would be run.")
@pass_session
def give(
    session: Session,
    role: str,
    login: str,
    queues: tuple[str, ...],
    functions: tuple[str, ...],
    create: bool,
    dry_run: bool,
) -> None:
    """Give LOGIN the role producer, worker, observer or admin; or that of an action of the dashboard.

    A worker also gets EXECUTE on the functions of the allow-list. With --queue it can use those queues and no others.
    """
    asked = Asked(role, login, queues, functions, create)
    done = give_role(session.find(), asked, dry_run=dry_run)
    if session.as_json:
        session.output.json({"dry_run": dry_run, "statements": done})
        return
    for statement in done:
        session.output.say(f"{statement};")
    if dry_run:
        session.output.note("nothing was changed")
