"""A worker's health, for probes: over HTTP, or by a file that is touched while all is well."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from dibs.runtime.http import Page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dibs.runtime.http import Route

EVERY = 2.0
"""Seconds between two touches of the file."""


def pages(trouble: Callable[[], str | None], ready: Callable[[], str | None]) -> dict[str, Route]:
    """The probes' pages: 200 when all is well, otherwise 503 and why."""

    async def live() -> Page:
        return _page(trouble())

    async def is_ready() -> Page:
        return _page(trouble() or ready())

    return {"/live": live, "/ready": is_ready}


def _page(why: str | None) -> Page:
    return Page("ok\n") if why is None else Page(f"{why}\n", HTTPStatus.SERVICE_UNAVAILABLE)


async def keep_fresh(path: Path, trouble: Callable[[], str | None]) -> None:
    """Touch the file while all is well; remove it at the end."""
    try:
        while True:
            if trouble() is None:
                await asyncio.to_thread(path.touch)
            await asyncio.sleep(EVERY)
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
