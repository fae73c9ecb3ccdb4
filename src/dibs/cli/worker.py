"""``dibs worker``: runs an app's tasks."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command, did_you_mean
from dibs.cli.fleet import run_fleet
from dibs.cli.session import Session, pass_session
from dibs.cli.types import Read
from dibs.client.app import App
from dibs.errors import InvalidArgument
from dibs.runtime.fleet import is_child, orphaned
from dibs.runtime.http import Pages
from dibs.worker import Settings, Share, Worker
from dibs.worker.health import keep_fresh, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

STOPS = (signal.SIGTERM, signal.SIGINT)


def _share(text: str) -> tuple[str, Share]:
    name, *parts = text.split(",")
    given: dict[str, Any] = {}
    for part in parts:
        key, _, number = part.partition("=")
        if key not in {"concurrency", "weight"}:
            hint = did_you_mean(key, ["concurrency", "weight"])
            raise ValueError(f"a queue's share has no {key!r}{hint}; write NAME,concurrency=N,weight=W")
        try:
            given[key] = int(number) if key == "concurrency" else float(number)
        except ValueError:
            raise ValueError(f"{key} is a number, not {number!r}") from None
    return name, Share(**given)


SHARE = Read("queue", _share)


@click.command(cls=Command, short_help="Run an app's tasks, until stopped or until none is left.")
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    type=SHARE,
    metavar="NAME[,concurrency=N][,weight=W]",
    help="A queue to work on, and its share; all of the app's without it.",
)
@click.option("--concurrency", default=100, show_default=True, help="How many handlers run at once.")
@click.option("--threads", default=20, show_default=True, help="How many of them may be plain functions.")
@click.option("--pool", type=int, help="How many of them may have a process of their own; as many as cores.")
@click.option("--connections", default=10, show_default=True, help="How many may be in context().transaction().")
@click.option("--processes", default=1, show_default=True, help="How many such workers to run, each a process.")
@click.option("--grace", default=30.0, show_default=True, help="Seconds to finish after a stop.")
@click.option("--poll", default=1.0, show_default=True, help="Seconds between looks for work nobody announced.")
@click.option("--drain", is_flag=True, help="Exit when nothing is left to do.")
@click.option("--no-upkeep", is_flag=True, help="Leave the maintenance loops to others.")
@click.option("--health", type=int, metavar="PORT", help="Answer probes there: /live and /ready.")
@click.option("--health-file", type=click.Path(path_type=Path), help="Touch this file as long as all is well.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where --health listens.")
@click.option("--reload", is_flag=True, help="Start anew when a Python file below this folder changes.")
@pass_session
def worker(
    session: Session,
    /,
    app: str,
    queues: tuple[tuple[str, Share], ...],
    processes: int,
    no_upkeep: bool,
    health: int | None,
    health_file: Path | None,
    host: str,
    reload: bool,
    **options: Any,
) -> None:
    """Run the tasks of the app MODULE:APP, such as shop.tasks:app.

    SIGTERM or Ctrl-C: no more jobs are taken, what runs may finish within the grace time, the rest is given back. A
    second one: everything is given back at once.
    """
    if (processes > 1 or reload) and not is_child():
        fleet = run_fleet(session, processes, reload=reload, drain=options["drain"], health=health, host=host)
        sys.exit(asyncio.run(fleet))
    found = load(app)
    if session.dsn:
        found.dsn = session.dsn
    shares = dict(queues) or dict.fromkeys(sorted({task.settings.queue for task in found.tasks.values()}), Share())
    given = {name: value for name, value in options.items() if value is not None}
    settings = Settings(shares, upkeep=not no_upkeep, name=app, **given)
    ended = asyncio.run(_run(found, settings, health, host, health_file))
    if session.as_json:
        session.output.json({"ended": ended})
    else:
        session.output.say(f"{ended} jobs ended")


async def _run(app: App, settings: Settings, health: int | None, host: str, health_file: Path | None) -> int:
    """Work until a signal says stop; how many jobs ended here."""
    made = Worker(app, settings)
    _obey_signals(made)
    beside: list[Coroutine[Any, Any, None]] = [_stop_orphan(made)] if is_child() else []
    if health_file is not None:
        beside.append(keep_fresh(health_file, lambda: made.trouble() or made.unready()))
    probes = Pages(pages(made.trouble, made.unready))
    if health is not None and not is_child():
        await probes.open(health, host)
    tasks = [asyncio.create_task(coroutine) for coroutine in beside]
    try:
        await made.run()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await probes.close()
    return made.ended


def _obey_signals(made: Worker) -> None:
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, _stop(made))
    if is_child():
        loop.add_signal_handler(signal.SIGUSR1, _hurry(made))


def _stop(made: Worker) -> Callable[[], None]:
    asked, is_alone = False, not is_child()

    def stop() -> None:
        nonlocal asked
        # A process manager may signal a whole group: in a fleet only the parent's own signal means "now".
        if asked and is_alone:
            made.hurry()
        asked = True
        made.stop()

    return stop


def _hurry(made: Worker) -> Callable[[], None]:
    def hurry() -> None:
        made.stop()
        made.hurry()

    return hurry


async def _stop_orphan(made: Worker) -> None:
    await orphaned()
    made.stop()


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
