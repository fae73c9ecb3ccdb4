"""The server's configuration: our own file, which postgresql.conf includes."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.embedded.postmaster import PORT
from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.embedded.account import Account
    from dibs.embedded.binaries import Binaries

FILE = "dibs.conf"
INCLUDE = f"include_if_exists '{FILE}'"

DEFAULTS: Mapping[str, str] = {
    "cluster_name": "dibs",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # The role has the name of dibs's schema, so by PostgreSQL's default your own tables would be made in that schema.
    "search_path": "public",
}

UNSAFE_FAST: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
}
"""Settings for data that may be lost when the machine crashes. A kill of the server loses nothing."""


def effective(binaries: Binaries, socket_dir: Path, settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the defaults, overridden by the caller's settings, and those by the fixed ones."""
    return {
        **DEFAULTS,
        **_preload(binaries),
        **settings,
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
    }


def include(data_dir: Path) -> None:
    """Include our file in postgresql.conf."""
    conf = os.open(data_dir / "postgresql.conf", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(conf, "w") as file:
        file.write(f"\n{INCLUDE}\n")
        file.flush()
        os.fsync(conf)


def is_included(data_dir: Path) -> bool:
    """True if postgresql.conf includes our file. Without it the server would listen on the network."""
    return INCLUDE in (data_dir / "postgresql.conf").read_text().splitlines()


def write(data_dir: Path, settings: Mapping[str, str], account: Account) -> None:
    """Replace our file. Never follow a link: we may be root, in a folder of another user."""
    text = "# Written at each start; for your own changes use ALTER SYSTEM.\n"
    text += "".join(f"{name} = {_quoted(name, value)}\n" for name, value in settings.items())
    file, path = tempfile.mkstemp(dir=data_dir, prefix=FILE)
    with os.fdopen(file, "w") as conf:
        conf.write(text)
        account.own(conf.fileno())
    Path(path).replace(data_dir / FILE)


def _preload(binaries: Binaries) -> dict[str, str]:
    if any(binaries.pkglibdir.glob("pg_stat_statements.*")):
        return {"shared_preload_libraries": "pg_stat_statements"}
    return {}


def _quoted(name: str, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name) or re.search(r"[\n\0]", value):
        raise EmbeddedError(f"not a setting of PostgreSQL: {name!r} = {value!r}")
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
