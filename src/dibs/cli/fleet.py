"""Several ``dibs worker`` processes under one parent."""

from __future__ import annotations

import asyncio
import signal
import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.runtime.fleet import Fleet
from dibs.runtime.http import Page, Pages
from dibs.runtime.watch import changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.cli.session import Session
    from dibs.runtime.http import Route


async def run_fleet(
    session: Session, count: int, *, reload: bool, drain: bool, health: int | None = None, host: str = "127.0.0.1"
) -> int:
    """Run the workers until a signal says stop; the exit status."""
    fleet = Fleet(
        lambda _: [sys.executable, "-m", "dibs", *sys.argv[1:]],
        count,
        until_done=drain,
        started=lambda pid: session.output.note(f"worker process {pid} started"),
        died=lambda pid, status: session.output.note(f"worker process {pid} ended with {status}, starting another"),
    )
    asked = False

    def stop() -> None:
        nonlocal asked
        fleet.hurry() if asked else fleet.stop()
        asked = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    watching = asyncio.create_task(_reload(fleet, session)) if reload else None
    probes = Pages({"/live": _well(lambda: True), "/ready": _well(lambda: fleet.alive == count)})
    if health is not None:
        await probes.open(health, host)
    try:
        return await fleet.run()
    finally:
        await probes.close()
        if watching is not None:
            watching.cancel()


async def _reload(fleet: Fleet, session: Session) -> None:
    while True:
        files = await changed(Path.cwd())
        session.output.note(f"{files[0].name} changed, starting anew")
        fleet.restart()


def _well(check: Callable[[], bool]) -> Route:
    async def page() -> Page:
        return Page("ok\n") if check() else Page("not all worker processes run\n", HTTPStatus.SERVICE_UNAVAILABLE)

    return page
