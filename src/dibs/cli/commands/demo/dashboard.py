"""The demo with a dashboard: a shop whose jobs come in until it is stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.cli.commands.demo.shop import feed, make_app
from dibs.cli.commands.web import listening, server_of, tell
from dibs.client.client_async import AsyncClient

if TYPE_CHECKING:
    from socket import socket

    from dibs.cli.session import Session


def show(session: Session, dsn: str, port: int) -> None:
    """Serve the dashboard, with a worker beside it, until Ctrl-C."""
    with listening("127.0.0.1", port) as listener:
        tell(session, listener, "", write=True)
        session.output.note("one task fails: find out which and why, and retry it; Ctrl-C ends the demo")
        try:
            asyncio.run(_serve(dsn, listener))
        except KeyboardInterrupt:
            return


async def _serve(dsn: str, listener: socket) -> None:
    from dibs.web.access import from_this_machine
    from dibs.web.app import app

    server = server_of(app(dsn, authorize=from_this_machine(write=True), poll=1.0))
    shop, stop = make_app(dsn), asyncio.Event()
    async with AsyncClient(dsn) as client:
        beside = [
            asyncio.create_task(shop.arun_worker(slots=8, grace=1.0, name="demo")),
            asyncio.create_task(feed(client, stop)),
        ]
        for task in beside:
            task.add_done_callback(lambda _: setattr(server, "should_exit", True))
        try:
            await server.serve([listener])
        finally:
            stop.set()
            beside[0].cancel()
            ended = await asyncio.gather(*beside, return_exceptions=True)
            await shop.aclose()
    for error in ended:
        if isinstance(error, Exception):
            raise error
