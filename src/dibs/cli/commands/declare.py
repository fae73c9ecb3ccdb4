"""``dibs declare``: write the declarations of an app's code to the database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.commands.worker import load
from dibs.cli.exits import Exit
from dibs.cli.session import PATIENCE, Session, pass_session
from dibs.db.database_async import AsyncDatabase
from dibs.worker.announce import REFUSED, Declared, declare_rules, declare_tasks

if TYPE_CHECKING:
    from dibs.client.app import App

EMPTY = "the tasks are registered; the code declares no limits and no schedules"


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:APP")
@pass_session
def declare(session: Session, app: str) -> None:
    """Write the tasks, limits and schedules that the code of MODULE:APP declares to the database.

    Run it in a deploy, before the workers, as a role with dibs_admin: the role of a worker may not set limits. Changes
    made by hand stay until the code changes. Exits with 1 if something was refused.
    """
    found = load(app)
    declared = asyncio.run(_declare(found, session.dsn or found.dsn or session.find(), app))
    session.show(declared, ("what", "name", "answer"), lambda d: d[:3], empty=EMPTY, as_json=lambda d: d._asdict())
    refused = [one for one in declared if one.answer == REFUSED]
    for one in refused:
        session.output.note(one.reason or "", style="red")
    if refused:
        raise click.exceptions.Exit(Exit.FAILED)


async def _declare(app: App, dsn: str, name: str) -> list[Declared]:
    database = AsyncDatabase(dsn, pool_size=1, patience=PATIENCE)
    try:
        await declare_tasks(app, database)
        return await declare_rules(app, database, name)
    finally:
        await database.close()
