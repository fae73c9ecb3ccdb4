"""The status of a server, and the ways to connect to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from dibs.embedded.cluster import DATABASE, SUPERUSER
from dibs.embedded.postmaster import PORT

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True)
class ServerStatus:
    """The present status of a server."""

    running: bool
    pid: int | None
    started_at: datetime | None
    data_dir: Path
    socket_dir: Path
    port: int
    """It only names the socket: the server listens on no network."""
    version: str
    dsn: str
    log: Path


def url(socket_dir: Path, dbname: str) -> str:
    """A connection string for libpq, and so for psycopg."""
    where = {"host": socket_dir, "port": PORT, "user": SUPERUSER}
    return f"postgresql:///{quote(dbname, safe='')}?{urlencode(where)}"


def environment(socket_dir: Path) -> dict[str, str]:
    """The connection as environment variables, for programs that read those."""
    return {
        "PGHOST": str(socket_dir),
        "PGPORT": str(PORT),
        "PGUSER": SUPERUSER,
        "PGDATABASE": DATABASE,
    }
