"""What is true of a server, and where clients find it."""

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
    """What is true of a server right now."""

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
    """What libpq, and so psycopg, connects by."""
    where = {"host": socket_dir, "port": PORT, "user": SUPERUSER}
    return f"postgresql:///{quote(dbname, safe='')}?{urlencode(where)}"


def environment(socket_dir: Path) -> dict[str, str]:
    """The same for programs that take it from their environment."""
    return {
        "PGHOST": str(socket_dir),
        "PGPORT": str(PORT),
        "PGUSER": SUPERUSER,
        "PGDATABASE": DATABASE,
    }
