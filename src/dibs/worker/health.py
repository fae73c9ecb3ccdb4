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

TOUCH_EVERY = 2.0
"""Seconds between two touches of the file."""


def pages(trouble: Callable[[], str | None], ready: Callable[[], str | None]) -> dict[str, Route]:
    """The pages for probes: 200 when all is well, otherwise 503 and the reason."""

    def live() -> Page:
        return _page(trouble())

    def is_ready() -> Page:
        return _page(trouble() or ready())

    return {"/live": live, "/ready": is_ready}


def _page(reason: str | None) -> Page:
    return Page("ok\n") if reason is None else Page(f"{reason}\n", HTTPStatus.SERVICE_UNAVAILABLE)


@contextmanager
def keep_fresh(path: Path, trouble: Callable[[], str | None]) -> Iterator[None]:
    """Touch the file while all is well, in a thread. Remove it at the end."""
    ended = threading.Event()

    def touch() -> None:
        while True:
            if trouble() is None:
                with suppress(OSError):  # The probe notices that the file grows old.
                    path.touch()
            if ended.wait(TOUCH_EVERY):
                return

    thread = threading.Thread(target=touch, name="dibs-health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(TOUCH_EVERY)
        path.unlink(missing_ok=True)
