"""``dibs worker``: runs an app's tasks."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import traceback
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from dibs.cli.command import Command, did_you_mean
from dibs.cli.exits import Exit
from dibs.cli.foreground import Endpoints, work
from dibs.cli.parent import DSN, run_children
from dibs.cli.session import Session, pass_session
from dibs.cli.types import Read
from dibs.client.app import App
from dibs.config import configured_dsn
from dibs.errors import InvalidArgument
from dibs.events import Events
from dibs.metrics.log_setup import LogSetup
from dibs.runtime.children import is_child
from dibs.runtime.running import run
from dibs.worker import Share
from dibs.worker.launch import settings_for

if TYPE_CHECKING:
    from types import ModuleType


def _share(text: str) -> tuple[str, Share]:
    name, *parts = text.split(",")
    given: dict[str, Any] = {}
    for part in parts:
        key, _, number = part.partition("=")
        if key not in {"slots", "weight"}:
            hint = did_you_mean(key, ["slots", "weight"])
            raise ValueError(f"a queue's share has no {key!r}{hint}; write NAME,slots=N,weight=W")
        try:
            given[key] = int(number) if key == "slots" else float(number)
        except ValueError:
            raise ValueError(f"{key} is a number, not {number!r}") from None
    return name, Share(**given)


SHARE = Read("queue", _share)


@click.command(cls=Command)
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    type=SHARE,
    metavar="NAME[,slots=N][,weight=W]",
    help="A queue to work on, and its share; without it, all of the app's.",
)
@click.option("--slots", default=100, show_default=True, help="How many handlers run at once.")
@click.option("--threads", default=20, show_default=True, help="How many of them may be plain functions.")
@click.option("--pool", type=int, help="How many of them may have their own process; by default, one per core.")
@click.option(
    "--connections", default=10, show_default=True, help="How many of them may be in context().transaction()."
)
@click.option("--processes", default=1, show_default=True, help="How many worker processes to run.")
@click.option("--grace", default=30.0, show_default=True, help="Seconds that running jobs have to finish after a stop.")
@click.option(
    "--poll", default=1.0, show_default=True, help="Seconds between looks for jobs that no notification announced."
)
@click.option("--drain", is_flag=True, help="Exit when nothing is left to do.")
@click.option("--channels", is_flag=True, help="Also run db_function, email and sms; needs no app.")
@click.option("--no-upkeep", is_flag=True, help="Leave the maintenance to other workers.")
@click.option("--health", type=int, metavar="PORT", help="Answer probes on this port: /live and /ready.")
@click.option("--health-file", type=click.Path(path_type=Path), help="Touch this file while the worker is ready.")
@click.option("--metrics", type=int, metavar="PORT", help="Serve Prometheus metrics on this port: /metrics.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where --health and --metrics listen.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json", "none"]),
    default="text",
    show_default=True,
    help="Format of the log.",
)
@click.option("--log-level", default="info", show_default=True, help="Least level to log: debug, info, warning, error.")
@click.option(
    "--log-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Set up logging from this file instead: .json, .toml or .ini.",
)
@click.option("--reload", is_flag=True, help="Restart when a Python file in this folder or below changes.")
@pass_session
def worker(
    session: Session,
    /,
    app: str | None,
    queues: tuple[tuple[str, Share], ...],
    processes: int,
    channels: bool,
    no_upkeep: bool,
    reload: bool,
    health: int | None,
    health_file: Path | None,
    metrics: int | None,
    host: str,
    log_format: Literal["text", "json", "none"],
    log_level: str,
    log_config: Path | None,
    **options: Any,
) -> Exit:
    """Run the tasks of the app MODULE:APP, such as shop.tasks:app; with --channels also those of the database.

    SIGTERM, Ctrl-C or dibs workers stop: no more jobs are taken, what runs may finish within the grace time, the rest
    is given back. A second signal: everything is given back at once. A handler that goes on even then is left behind:
    exit code 5.
    """
    endpoints = Endpoints(host, health, metrics, health_file)
    setup = _log_setup(log_format, log_level, log_config)
    if (processes > 1 or reload) and not is_child():
        sys.exit(_run_parent(session, app, processes, endpoints, setup, reload, options))
    found = with_channels(app) if channels else load(app)
    found.dsn = session.dsn or (os.environ.pop(DSN, None) if is_child() else None) or found.dsn
    options |= {"queues": dict(queues) or None, "upkeep": not no_upkeep, "name": app or "channels"}
    given: Any = {name: value for name, value in options.items() if value is not None}
    settings = settings_for(found, given)
    with closing(setup.begin(found.events)):
        if not channels:
            _warn_of_unused(found, queues)
        done = run(work(found, settings, endpoints))
    _report(session, done.ended, log_format)
    return Exit.ASKED if done.was_stopped_by_operator and is_child() else Exit.OK


def _run_parent(
    session: Session,
    app: str | None,
    count: int,
    endpoints: Endpoints,
    setup: LogSetup,
    reload: bool,
    options: dict[str, Any],
) -> int:
    if session.dsn:
        os.environ[DSN] = session.dsn
    with closing(setup.begin(events := Events())):
        return asyncio.run(
            run_children(
                count, events, endpoints, lambda: _database(session, app), reload, options["drain"], options["grace"]
            )
        )


def _log_setup(format: Literal["text", "json", "none"], level: str, config: Path | None) -> LogSetup:
    if config is None:
        return LogSetup(format, level)
    given = click.get_current_context().get_parameter_source
    for name in ("log_format", "log_level"):
        if given(name) is ParameterSource.COMMANDLINE:
            raise InvalidArgument(f"--{name.replace('_', '-')} and --log-config are given; the file says it all")
    return LogSetup(config=str(config.absolute()))


def _report(session: Session, ended: int, log_format: str) -> None:
    if session.as_json:
        session.output.json({"ended": ended})
    elif log_format != "json":  # Both streams may go to one log, which must have JSON alone.
        session.output.say("1 job ended" if ended == 1 else f"{ended} jobs ended")


def _warn_of_unused(app: App, queues: tuple[tuple[str, Share], ...]) -> None:
    used = {task.settings.queue for task in app.tasks.values()}
    for name, _ in queues:
        if name not in used:
            hint = did_you_mean(name, used)
            logging.getLogger("dibs").warning("no task of this app is enqueued to the queue %r%s", name, hint)


def _database(session: Session, app: str | None) -> str | None:
    try:
        return session.dsn or (app and load(app).dsn) or configured_dsn(None)
    except InvalidArgument:
        return None  # Each worker process will say so.


def with_channels(path: str | None) -> App:
    """Return the app with the channels added, or an app of channels alone."""
    from dibs.channels import ChannelApp, add

    if path is None:
        return ChannelApp()
    found = load(path)
    add(found)
    return found


def load(path: str | None) -> App:
    """Return the app that ``module:name`` stands for."""
    if path is None:
        raise InvalidArgument("name an app, such as shop.tasks:app, or give --channels")
    module, _, name = path.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # Last: a file here must not take the place of a library.
    found = getattr(_import(module), name or "app", None)
    if found is None:
        raise InvalidArgument(
            f"{module} has no {name or 'app'}{did_you_mean(name, vars(sys.modules[module]))}",
            hint=f"it is {sys.modules[module].__file__}; give the app as module:name, such as shop.tasks:app",
        )
    if not isinstance(found, App):
        raise InvalidArgument(f"{path} is a {type(found).__name__}, not a dibs.App")
    return found


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            hint = "give the app as module:name, such as shop.tasks:app; the module is looked for here, too"
            raise InvalidArgument(f"there is no module {error.name}", hint=hint) from None
        raise InvalidArgument(
            f"{module} cannot be imported: {type(error).__name__}: {error}",
            hint=f"{_place(error)}; with --debug you see how it got there",
        ) from error


def _place(error: Exception) -> str:
    """Return the place where an import failed: the last line that ran of a source file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    return f"{frames[-1].filename}, line {frames[-1].lineno}"
