"""A worker's health, for probes: over HTTP, or by a file that is touched while all is well."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from dibs.runtime.http import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dibs.runtime.http import Route

EVERY = 2.0
"""Seconds between two touches of the file."""


def pages(trouble: Callable[[], str | None], ready: Callable[[], str | None]) -> dict[str, Route]:
    """The probes' pages: 200 when all is well, otherwise 503 and why."""

    def live() -> Page:
        return _page(trouble())

    def is_ready() -> Page:
        return _page(trouble() or ready())

    return {"/live": live, "/ready": is_ready}


def _page(why: str | None) -> Page:
    return Page("ok\n") if why is None else Page(f"{why}\n", HTTPStatus.SERVICE_UNAVAILABLE)


@contextmanager
def keep_fresh(path: Path, trouble: Callable[[], str | None]) -> Iterator[None]:
    """Touch the file while all is well, from a thread; remove it at the end."""
    ended = threading.Event()

    def touch() -> None:
        while True:
            if trouble() is None:
                with suppress(OSError):  # The probe will notice.
                    path.touch()
            if ended.wait(EVERY):
                return

    thread = threading.Thread(target=touch, name="dibs-health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(EVERY)
        path.unlink(missing_ok=True)
