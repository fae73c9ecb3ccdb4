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
    own_dsn, own_client, own_async = app.dsn, app.__dict__.pop("client", None), app._async
    # No async client of the block is closed here: its event loop has ended, and its connections with it.
    app.dsn, app._async = dsn, WeakKeyDictionary()
    try:
        yield app
    finally:
        app.close()
        app.__dict__.pop("client", None)
        app.dsn, app._async = own_dsn, own_async
        if own_client is not None:
            app.__dict__["client"] = own_client
