"""``dibs worker``: runs an app's tasks."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import sys

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.client.app import App
from dibs.errors import InvalidArgument
from dibs.worker import Settings, Worker

STOPS = (signal.SIGTERM, signal.SIGINT)


@click.command(cls=Command, short_help="Run an app's tasks, until stopped or until none is left.")
@click.argument("app", metavar="MODULE:APP")
@click.option("--queue", "queues", multiple=True, help="A queue to work on; all of the app's without it.")
@click.option("--concurrency", default=100, show_default=True, help="How many handlers run at once.")
@click.option("--threads", default=20, show_default=True, help="How many of them may be plain functions.")
@click.option("--grace", default=30.0, show_default=True, help="Seconds to finish after a stop.")
@click.option("--drain", is_flag=True, help="Exit when nothing is left to do.")
@click.option("--no-upkeep", is_flag=True, help="Leave the maintenance loops to others.")
@pass_session
def worker(
    session: Session,
    app: str,
    queues: tuple[str, ...],
    concurrency: int,
    threads: int,
    grace: float,
    drain: bool,
    no_upkeep: bool,
) -> None:
    """Run the tasks of the app MODULE:APP, such as shop.tasks:app.

    SIGTERM or Ctrl-C: no more jobs are taken, what runs may finish within the grace time, the rest is given back. A
    second one: everything is given back at once.
    """
    found = load(app)
    if session.dsn:
        found.dsn = session.dsn
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    names = queues or tuple(sorted({task.settings.queue for task in found.tasks.values()}))
    settings = Settings(
        names, concurrency=concurrency, threads=threads, grace=grace, drain=drain, upkeep=not no_upkeep, name=app
    )
    ended = asyncio.run(run(found, settings))
    if session.as_json:
        session.output.json({"ended": ended})
    else:
        session.output.say(f"{ended} jobs ended")


async def run(app: App, settings: Settings) -> int:
    """Work until a signal says stop; how many jobs ended here."""
    made = Worker(app, settings)
    for number in STOPS:
        asyncio.get_running_loop().add_signal_handler(number, made.stop)
    logging.getLogger("dibs.worker").info("working on %s", ", ".join(settings.queues))
    await made.run()
    return made.ended


def load(path: str) -> App:
    """The app that ``module:name`` stands for."""
    module, _, name = path.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name or "app")
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(
            f"there is no app {path}: {error}", hint="give it as module:name, such as shop.tasks:app"
        ) from error
    if not isinstance(found, App):
        raise InvalidArgument(f"{path} is a {type(found).__name__}, not a dibs.App")
    return found
