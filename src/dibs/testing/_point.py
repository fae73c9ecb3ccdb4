"""Points an app at another database for a while."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.client.app import App


@contextmanager
def pointed(app: App, dsn: str) -> Iterator[App]:
    """Point an app at another database until the block ends. Its own clients are kept aside."""
    kept = app.dsn, app.__dict__.pop("client", None), app._async
    # Async clients belong to event loops that have ended when the block ends, and their connections with them.
    app.dsn, app._async = dsn, WeakKeyDictionary()
    try:
        yield app
    finally:
        app.close()
        app.__dict__.pop("client", None)
        app.dsn, client, app._async = kept
        if client is not None:
            app.__dict__["client"] = client
