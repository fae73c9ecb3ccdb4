"""Finding the database: told, from the environment, or embedded."""

from __future__ import annotations

import logging

from dibs.config import configured_dsn
from dibs.db.schema import migrate
from dibs.embedded import ensure_running

log = logging.getLogger("dibs")


def find_database(dsn: str | None) -> str:
    """The DSN to use; starts and installs the embedded PostgreSQL when none is configured, and says so."""
    if found := configured_dsn(dsn):
        return found
    server = ensure_running()
    embedded = server.dsn()
    log.warning("no DSN given and DIBS_DSN is not set: using the embedded PostgreSQL (%s)", embedded)
    migrate(embedded)
    return embedded
